// Command equalprefix writes the AVX2 kernel of package simd.
//
// It is run by "go generate" in the directory above; see the note on generated files there.
// It lives in a module of its own, so that the assembler library it is built on never
// enters the module graph of whoever imports hitline.
//
// # The method
//
// Two arrays of hashes are, for the machine, two runs of bytes, and the number of leading
// equal hashes is the position of the first differing byte divided by the length of a hash.
// The kernel therefore knows nothing about hashes: it finds that byte, and its caller
// divides.
//
// A vector compare yields 0xFF for each byte that is equal and 0x00 for each that is not.
// One such result takes 32 bytes; reducing four of them with AND costs three instructions
// and leaves one branch for 128 bytes, which is as fast as two load ports can deliver. Only
// when the branch finds a difference are the four results looked at one by one, once a
// call.
//
// There is no software prefetch. Both runs are read in order, which the hardware sees by
// itself: fetching 512 to 2048 bytes ahead won less than a tenth on arrays out of cache and
// lost a sixth on those in the first-level cache.
//
// # The end of the run
//
// No load may pass the end of either slice: the page behind it may be unreadable. Instead
// of a tail that goes byte by byte, the last block is moved back until it ends with the
// run. It then covers some bytes a second time, which are known to be equal, so that the
// first difference it sees is still the first of all. This needs one whole block to exist:
// runs of 128 bytes or more are done in blocks of 128, runs of 32 to 127 in blocks of 32,
// and shorter ones are not accepted.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	// vector is the width of a YMM register in bytes.
	vector = 32
	// unroll is the number of vectors compared per branch. Four results and the two sums
	// over them fit the registers with room to spare, and at four the loads are the limit
	// already, two for each vector.
	unroll = 4
	// block is the number of bytes one turn of the main loop compares.
	block = unroll * vector
)

func main() {
	ConstraintExpr("!purego")

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

	// last is the position of the last block: the largest i at which a whole block can
	// still be loaded. It is negative if there is no room for one of 128 bytes, and then
	// the run is done vector by vector.
	last := GP64()
	LEAQ(Mem{Base: n, Disp: -block}, last)
	TESTQ(last, last)
	JL(LabelRef("vectors"))

	Comment("Blocks of 128 bytes.")
	Label("block")
	{
		// Load four vectors of a and compare each with its partner in b, read straight from
		// memory. i <= last, so all 128 bytes exist.
		eq := [unroll]VecVirtual{YMM(), YMM(), YMM(), YMM()}
		for k := range eq {
			VMOVDQU(Mem{Base: a, Index: i, Scale: 1, Disp: k * vector}, eq[k])
		}
		for k := range eq {
			VPCMPEQB(Mem{Base: b, Index: i, Scale: 1, Disp: k * vector}, eq[k], eq[k])
		}

		// A byte of all is 0xFF if it is so in each of the four. The four stay as they are:
		// if this block is the one, they say where.
		all, right := YMM(), YMM()
		VPAND(eq[0], eq[1], all)
		VPAND(eq[2], eq[3], right)
		VPAND(all, right, all)

		// One bit for each byte. All 32 set is -1, which one increment turns into 0.
		mask := GP32()
		VPMOVMSKB(all, mask)
		INCL(mask)
		JNZ(LabelRef("differs"))

		// On to the next block while a whole one is left.
		ADDQ(Imm(block), i)
		CMPQ(i, last)
		JLE(LabelRef("block"))

		// Less than a block is left. If it is nothing, the runs are equal; otherwise the
		// loop is entered once more, at the last position. That turn leaves i == n behind
		// and so ends here.
		CMPQ(i, n)
		JEQ(LabelRef("equal"))
		MOVQ(last, i)
		JMP(LabelRef("block"))

		Comment("The difference is in this block: put the four results into two words, find the first zero bit.")
		Label("differs")
		low, high := firstWord(eq[0], eq[1]), firstWord(eq[2], eq[3])

		// A word of ones has no zero bit: then the difference is in the other one, 64 bytes
		// further. NOT leaves the flags alone, hence the TEST.
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
		// The same loop with one vector for a block; n >= 32 makes last >= 0.
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

	Generate()
}

// firstWord emits the joining of two compare results into one register of 64 bits, lo below
// hi, in which bit k says whether byte k is equal.
func firstWord(lo, hi VecVirtual) GPVirtual {
	word, upper := GP64(), GP64()
	VPMOVMSKB(lo, word.As32())
	VPMOVMSKB(hi, upper.As32())
	SHLQ(Imm(32), upper)
	ORQ(upper, word)
	return word
}
