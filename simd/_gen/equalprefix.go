package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	// unroll is the number of vectors compared per branch. With four, the loads are already
	// the limit, two for each vector. The four results and two ANDs over them fit into the
	// registers.
	unroll = 4
	// block is the number of bytes that one iteration of the main loop compares.
	block = unroll * vector
	// ahead is the distance of the prefetch of a, in bytes.
	ahead = 4096
	// line is the length of a cache line in bytes.
	line = 64
)

// equalBytes compares two runs of bytes.
//
// # The method
//
// The number of leading equal hashes is the position of the first differing byte, divided by
// the length of a hash. The kernel finds that byte in two runs of bytes; its caller divides.
//
// A vector compare yields 0xFF for each byte that is equal and 0x00 for each that is not.
// Four such results are joined by three ANDs, so that 128 bytes need one branch. That is as
// fast as two load ports deliver. The kernel looks at the single results only once a call,
// when the branch finds a difference.
//
// # Memory
//
// The important case is long. Then the stored run, a, is in memory, and the received run, b,
// was just written and is in the second-level cache. The hardware prefetcher follows
// sequential reads, but starts over at each page of 4 KiB. So the kernel prefetches a, one
// page ahead, into the second-level cache. It prefetches nothing after the end of the run:
// runs of up to one page, and the last page of longer ones, have no prefetch.
//
// Medians in ns a hash of 32 bytes, 11 to 31 interleaved rounds over 320 MiB of chains of
// 8,192 hashes in random order, on pages of 4 KiB and of 2 MiB (Intel Xeon, family 6 model
// 207, 2 cores of it); both cached is the best of 25 on 64 KiB:
//
//	                               a in memory, b cached   both in memory   both cached
//	no prefetch                    2.58–2.70               4.22             0.38
//	a, 4 KiB ahead, second level   2.21–2.26               4.13             0.42
//	a and b, the same              2.30–2.35               4.06             0.46
//	a, 4 KiB ahead, first level    2.43–2.56               4.05             —
//	a and b, non-temporal          6.96–7.43               9.97             —
//	AVX-512, 256 bytes a branch    2.23–2.33               4.03             0.22
//	AVX-512 with a, 4 KiB ahead    2.12–2.18               3.97             0.31
//
// With a in the third-level cache the prefetch makes no difference. AVX-512 gains little over
// the prefetch when memory is the limit, and would be one more kernel that needs a machine
// to test. Distances of 1, 2 and 8 KiB, blocks of 256 bytes and huge pages are no better.
//
// # The end of the run
//
// No load may pass the end of either slice: the next page may be unreadable. There is no
// loop over single bytes. Instead the last block moves back until it ends with the run. It
// compares some bytes again, which are equal, so the first difference in it is still the
// first of all. This needs one whole block: runs of 128 bytes or more use blocks of 128,
// runs of 32 to 127 use blocks of 32, and shorter runs are not accepted.
func equalBytes() {
	TEXT("equalBytesAVX2", NOSPLIT, "func(a, b *byte, n int) int")
	Pragma("noescape")
	Doc(
		"equalBytesAVX2 returns the number of leading bytes that are equal in a[:n]",
		"and b[:n], which is n if all are. It needs AVX2 and n >= 32, and reads nothing",
		"outside of those n bytes.",
	)

	// The position i counts up from 0 and indexes both runs; a and b stay.
	a := Load(Param("a"), GP64())
	b := Load(Param("b"), GP64())
	n := Load(Param("n"), GP64())
	i := GP64()
	XORQ(i, i)

	// last is the largest i at which a whole block can be loaded. It is negative if the run
	// is shorter than a block; then it is compared vector by vector.
	last := GP64()
	LEAQ(Mem{Base: n, Disp: -block}, last)
	TESTQ(last, last)
	JL(LabelRef("vectors"))

	// The four results of the current block are in the same registers in both loops: the
	// code at "differs" serves both.
	eq := [unroll]VecVirtual{YMM(), YMM(), YMM(), YMM()}
	compareBlock := func() {
		// Load four vectors of a and compare each with its partner in b, read straight from
		// memory. i <= last, so all 128 bytes exist.
		for k := range eq {
			VMOVDQU(Mem{Base: a, Index: i, Scale: 1, Disp: k * vector}, eq[k])
		}
		for k := range eq {
			VPCMPEQB(Mem{Base: b, Index: i, Scale: 1, Disp: k * vector}, eq[k], eq[k])
		}

		// A byte of all is 0xFF if it is 0xFF in each of the four. The four do not change: if
		// this block differs, they tell where.
		all, right := YMM(), YMM()
		VPAND(eq[0], eq[1], all)
		VPAND(eq[2], eq[3], right)
		VPAND(all, right, all)

		// One bit for each byte. All 32 set is -1, so the increment gives 0.
		mask := GP32()
		VPMOVMSKB(all, mask)
		INCL(mask)
		JNZ(LabelRef("differs"))
	}

	// far is the position of the last block whose prefetch stays in the run. The first loop
	// leaves at least one block to the second, because ahead is a multiple of block.
	far := GP64()
	LEAQ(Mem{Base: n, Disp: -(ahead + block)}, far)
	CMPQ(i, far)
	JG(LabelRef("block"))

	Comment("Blocks of 128 bytes, fetching ahead.")
	Label("ahead")
	{
		for at := 0; at < block; at += line {
			PREFETCHT1(Mem{Base: a, Index: i, Scale: 1, Disp: ahead + at})
		}
		compareBlock()
		ADDQ(Imm(block), i)
		CMPQ(i, far)
		JLE(LabelRef("ahead"))
	}

	Comment("Blocks of 128 bytes.")
	Label("block")
	{
		compareBlock()

		// On to the next block while a whole one is left.
		ADDQ(Imm(block), i)
		CMPQ(i, last)
		JLE(LabelRef("block"))

		// Less than a block is left. If nothing is left, the runs are equal. Otherwise one
		// more iteration compares the block at last; it leaves i == n.
		CMPQ(i, n)
		JEQ(LabelRef("equal"))
		MOVQ(last, i)
		JMP(LabelRef("block"))

		Comment("The difference is in this block: put the four results into two words, find the first zero bit.")
		Label("differs")
		low, high := joinMasks(eq[0], eq[1]), joinMasks(eq[2], eq[3])

		// If the low word has no zero bit, the difference is in the high one, 64 bytes
		// further. NOT does not set the flags, hence the TEST.
		NOTQ(low)
		TESTQ(low, low)
		JNZ(LabelRef("found"))
		MOVQ(high, low)
		NOTQ(low)
		ADDQ(Imm(2*vector), i)
		Label("found")
		BSFQ(low, low)
		ADDQ(low, i)
		VZEROUPPER()
		Store(i, ReturnIndex(0))
		RET()
	}

	Comment("Vectors of 32 bytes, for runs shorter than one block.")
	Label("vectors")
	{
		// The same loop with one vector as its block. last >= 0, since n >= 32.
		LEAQ(Mem{Base: n, Disp: -vector}, last)
		Label("vector")
		eq := YMM()
		VMOVDQU(Mem{Base: a, Index: i, Scale: 1}, eq)
		VPCMPEQB(Mem{Base: b, Index: i, Scale: 1}, eq, eq)
		mask := GP32()
		VPMOVMSKB(eq, mask)
		NOTL(mask)
		TESTL(mask, mask)
		JNZ(LabelRef("differsInVector"))
		ADDQ(Imm(vector), i)
		CMPQ(i, last)
		JLE(LabelRef("vector"))
		CMPQ(i, n)
		JEQ(LabelRef("equal"))
		MOVQ(last, i)
		JMP(LabelRef("vector"))

		Label("differsInVector")
		BSFL(mask, mask)
		ADDQ(mask.As64(), i)
		VZEROUPPER()
		Store(i, ReturnIndex(0))
		RET()
	}

	Comment("No difference.")
	Label("equal")
	VZEROUPPER()
	Store(n, ReturnIndex(0))
	RET()
}

// joinMasks emits code that joins two compare results in one 64-bit register, lo below hi.
// Bit k of it is set if byte k is equal.
func joinMasks(lo, hi VecVirtual) GPVirtual {
	word, upper := GP64(), GP64()
	VPMOVMSKB(lo, word.As32())
	VPMOVMSKB(hi, upper.As32())
	SHLQ(Imm(32), upper)
	ORQ(upper, word)
	return word
}
