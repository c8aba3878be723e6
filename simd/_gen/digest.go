package main

import (
	"github.com/mmcloughlin/avo/ir"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// chunk is the number of bytes of a message, and of the secret, that have one product for
// each 16 bytes of their first half.
const chunk = 128

// digestKernel emits one digest function. Those for XMM and ZMM registers are the same but
// for the number of products that an instruction makes: one and four.
type digestKernel struct {
	bytes    int // the width of a register
	register func() VecVirtual
	message  Register
	secret   Register

	// The sums of the products of low halves, of high halves, and of a low with a high half.
	low, high, middle VecVirtual
}

// digest emits the sum of the products that package simd defines in digest.go.
//
// # The method
//
// A product of two words of 128 bits is four products of 64 bits: the low halves, the high
// halves and the two of a low with a high half. VPCLMULQDQ makes one of them in each 128 bits
// of a register, without a shuffle: its immediate operand chooses the halves. The products
// are summed by exclusive or in three registers, and are joined once at the end. So the sum
// is exact, 255 bits long, and its reduction is left to the caller.
//
// # The limit
//
// Intel processors have one port for VPCLMULQDQ: 2 KiB are 64 instructions of four products,
// so at least 64 cycles. The other instructions fit beside them: 32 to add the secret, and
// 32 to sum, each of which adds two products (VPTERNLOGQ, whose table 0x96 is the exclusive
// or of three). With one product an instruction it is 256 cycles.
//
// # Memory
//
// A message is mostly part of a longer request. If the caller goes through it in order, the
// kernel prefetches what later calls read, as equalBytes does, also past the end of the
// slice: a prefetch has no effect but on caches, and never faults. Medians in ns a hash of 32
// bytes, 64 to a digest, 15 interleaved rounds over 320 MiB of requests of 8,192 hashes in
// random order, digests in memory too; both cached is the median of 101 (same machine as
// equalBytes):
//
//	                              request in memory   request cached   both cached
//	no prefetch                   3.74                0.84             0.39
//	second level, 2 KiB ahead     3.33                1.04             —
//	second level, 4 KiB ahead     3.21                0.91             0.42
//	second level, 8 KiB ahead     3.31                0.80             0.42
//	first level, 1 KiB ahead      3.64                0.72             0.42
//	comparison of the bytes       4.52                2.85             0.43
//
// So it prefetches 8 KiB ahead: a server has just received its request, which is cached.
func digest(name string, bytes int) {
	TEXT(name, NOSPLIT, "func(sum *[4]uint64, secret *uint64, message *byte, n int)")
	Pragma("noescape")
	needs := "AVX and PCLMULQDQ"
	if bytes == 64 {
		needs = "AVX512F, AVX512BW and VPCLMULQDQ"
	}
	Doc(
		name+" is sumProductsGeneric. n is a multiple of 64 from 64 to 4096, and",
		"the secret is at least as long, rounded up to a multiple of 128. It needs "+needs+".",
	)

	k := &digestKernel{bytes: bytes, register: XMM}
	if bytes == 64 {
		k.register = ZMM
	}
	sum := Load(Param("sum"), GP64())
	k.secret = Load(Param("secret"), GP64())
	k.message = Load(Param("message"), GP64())
	n := Load(Param("n"), GP64())
	k.low, k.high, k.middle = k.register(), k.register(), k.register()
	for _, r := range []VecVirtual{k.low, k.high, k.middle} {
		VPXOR(r.AsX(), r.AsX(), r.AsX()) // clears all of the register
	}

	// One iteration is two chunks with wide registers, so that all products are summed in
	// pairs, and one with narrow ones.
	step := chunk
	if bytes == 64 {
		step = 2 * chunk
	}
	SUBQ(U32(uint32(step)), n)
	JL(LabelRef("rest"))
	Label("next")
	{
		for at := 0; at < step; at += line {
			PREFETCHT1(Mem{Base: k.message, Disp: 2*ahead + at})
		}
		k.chunks(step)
		ADDQ(U32(uint32(step)), k.message)
		ADDQ(U32(uint32(step)), k.secret)
		SUBQ(U32(uint32(step)), n)
		JGE(LabelRef("next"))
	}

	Label("rest")
	if step > chunk {
		Comment("One more chunk.")
		ADDQ(Imm(chunk), n)
		JL(LabelRef("half"))
		k.chunks(chunk)
		ADDQ(Imm(chunk), k.message)
		ADDQ(Imm(chunk), k.secret)
		SUBQ(Imm(chunk), n)
		Label("half")
	}
	Comment("Half a chunk: the other half is zeros, so only the secret is there.")
	ADDQ(Imm(chunk/2), n)
	JL(LabelRef("join"))
	for at := 0; at < chunk/2; at += bytes {
		x, y := k.load(at), k.register()
		k.move(Mem{Base: k.secret, Disp: at + chunk/2}, y)
		k.add(k.products(x, y))
	}

	Label("join")
	k.join()
	VMOVDQU(k.low.AsX(), Mem{Base: sum})
	VMOVDQU(k.high.AsX(), Mem{Base: sum, Disp: 16})
	VZEROUPPER()
	RET()
}

// join emits the sum of the three sums, in the lowest 128 bits of low and high.
func (k *digestKernel) join() {
	Comment("Join the sums. The middle one counts from bit 64.")
	t := k.register()
	if k.bytes == 64 {
		VPSLLDQ(Imm(8), k.middle, t)
		VPXORQ(t, k.low, k.low)
		VPSRLDQ(Imm(8), k.middle, k.middle)
		VPXORQ(k.middle, k.high, k.high)
		for _, r := range []VecVirtual{k.low, k.high} {
			VEXTRACTI64X4(Imm(1), r, t.AsY())
			VPXOR(t.AsY(), r.AsY(), r.AsY())
			VEXTRACTI128(Imm(1), r.AsY(), t.AsX())
			VPXOR(t.AsX(), r.AsX(), r.AsX())
		}
	} else {
		VPSLLDQ(Imm(8), k.middle, t)
		VPXOR(t, k.low, k.low)
		VPSRLDQ(Imm(8), k.middle, k.middle)
		VPXOR(k.middle, k.high, k.high)
	}
}

// chunks emits the sum of the products of n bytes.
func (k *digestKernel) chunks(n int) {
	var products [][4]Op
	for c := 0; c < n; c += chunk {
		for at := c; at < c+chunk/2; at += k.bytes {
			products = append(products, k.products(k.load(at), k.load(at+chunk/2)))
			if k.bytes == 16 {
				// There are only 16 registers.
				k.add(products...)
				products = nil
			}
		}
	}
	k.add(products...)
}

// load emits a load of the message at the offset, plus the secret.
func (k *digestKernel) load(at int) VecVirtual {
	r := k.register()
	k.move(Mem{Base: k.message, Disp: at}, r)
	if k.bytes == 64 {
		VPXORQ(Mem{Base: k.secret, Disp: at}, r, r)
	} else {
		VPXOR(Mem{Base: k.secret, Disp: at}, r, r)
	}
	return r
}

func (k *digestKernel) move(from Mem, to VecVirtual) {
	if k.bytes == 64 {
		VMOVDQU64(from, to)
	} else {
		VMOVDQU(from, to)
	}
}

// products emits the four products of x and y: low, high and the two in the middle.
func (k *digestKernel) products(x, y VecVirtual) (p [4]Op) {
	for i, halves := range []Constant{Imm(0x00), Imm(0x11), Imm(0x01), Imm(0x10)} {
		r := k.register()
		if k.bytes == 64 {
			// The assembler library knows only the narrow form.
			Instruction(&ir.Instruction{
				Opcode:   "VPCLMULQDQ",
				Operands: []Op{halves, y, x, r},
				Inputs:   []Op{y, x},
				Outputs:  []Op{r},
				ISA:      []string{"AVX512F", "VPCLMULQDQ"},
			})
		} else {
			VPCLMULQDQ(halves, y, x, r)
		}
		p[i] = r
	}
	return p
}

// add emits the addition of products to the sums.
func (k *digestKernel) add(products ...[4]Op) {
	var low, high, middle []Op
	for _, p := range products {
		low, high, middle = append(low, p[0]), append(high, p[1]), append(middle, p[2], p[3])
	}
	for _, s := range []struct {
		sum   VecVirtual
		terms []Op
	}{{k.middle, middle}, {k.low, low}, {k.high, high}} {
		for len(s.terms) > 0 {
			if k.bytes == 64 && len(s.terms) > 1 {
				VPTERNLOGQ(Imm(0x96), s.terms[0], s.terms[1], s.sum)
				s.terms = s.terms[2:]
				continue
			}
			if k.bytes == 64 {
				VPXORQ(s.terms[0], s.sum, s.sum)
			} else {
				VPXOR(s.terms[0], s.sum, s.sum)
			}
			s.terms = s.terms[1:]
		}
	}
}
