package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	// unroll is the number of vectors compared per branch. Four results and the two sums
	// over them fit the registers with room to spare, and at four the loads are the limit
	// already, two for each vector.
	unroll = 4
	// block is the number of bytes one turn of the main loop compares.
	block = unroll * vector
	// ahead is how far ahead of the comparison the first run is fetched, in bytes.
	ahead = 4096
	// line is the length of a cache line in bytes.
	line = 64
)

// equalBytes compares two runs of bytes.
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
// # Memory
//
// The runs that matter are long and their stored half is in memory, not in a cache, while
// the received half has just come in and is in the second-level cache. The hardware sees
// that both are read in order, but it stops at each page of 4 KiB and learns anew; so the
// kernel asks for the stored half, which is a, one page ahead, into the second-level cache.
// Runs of no more than that page, and the last page of longer ones, go without: whatever
// lies behind a run is none of its business.
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
// With the stored half in the third-level cache the prefetch gains and loses nothing.
// AVX-512 gains little over the prefetch where memory is what is waited for, and would be
// one more kernel that needs a machine to be tested on. Distances of 1, 2 and 8 KiB, blocks
// of 256 bytes and huge pages under either run are no better.
//
// # The end of the run
//
// No load may pass the end of either slice: the page behind it may be unreadable. Instead
// of a tail that goes byte by byte, the last block is moved back until it ends with the
// run. It then covers some bytes a second time, which are known to be equal, so that the
// first difference it sees is still the first of all. This needs one whole block to exist:
// runs of 128 bytes or more are done in blocks of 128, runs of 32 to 127 in blocks of 32,
// and shorter ones are not accepted.
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

	// last is the position of the last block: the largest i at which a whole block can
	// still be loaded. It is negative if there is no room for one of 128 bytes, and then
	// the run is done vector by vector.
	last := GP64()
	LEAQ(Mem{Base: n, Disp: -block}, last)
	TESTQ(last, last)
	JL(LabelRef("vectors"))

	// The four compare results of the block at hand, in the same registers in both loops,
	// as the code behind "differs" serves both.
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
	}

	// far is the position of the last block whose lines ahead are still in the run. The
	// first loop leaves at least one block to the second, as ahead is a multiple of block.
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
