package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// runBytes compares a run of bytes with its first two, which are one 16-bit element.
//
// It is equalBytes with one run in a register: all 16 elements of a vector are the first
// element. It compares bytes, since an element differs exactly if one of its bytes does. All
// vectors begin at a whole element, also the one that is moved back to the end, because the
// lengths of the run and of a vector are even.
func runBytes() {
	TEXT("runBytesAVX2", NOSPLIT, "func(p *byte, n int) int")
	Pragma("noescape")
	Doc(
		"runBytesAVX2 returns the number of leading bytes of p[:n] that repeat its first",
		"two bytes. It needs AVX2 and an even n >= 32, and reads nothing outside of those",
		"n bytes.",
	)

	p := Load(Param("p"), GP64())
	n := Load(Param("n"), GP64())
	i, last := GP64(), GP64()
	first := YMM()
	VPBROADCASTW(Mem{Base: p}, first)
	XORQ(i, i)
	LEAQ(Mem{Base: n, Disp: -block}, last)
	TESTQ(last, last)
	JL(LabelRef("vectors"))

	Comment("Blocks of 128 bytes.")
	Label("block")
	{
		eq := [unroll]VecVirtual{YMM(), YMM(), YMM(), YMM()}
		for k := range eq {
			VPCMPEQB(Mem{Base: p, Index: i, Scale: 1, Disp: k * vector}, first, eq[k])
		}
		all, right := YMM(), YMM()
		VPAND(eq[0], eq[1], all)
		VPAND(eq[2], eq[3], right)
		VPAND(all, right, all)
		mask := GP32()
		VPMOVMSKB(all, mask)
		INCL(mask)
		JNZ(LabelRef("differs"))
		ADDQ(Imm(block), i)
		CMPQ(i, last)
		JLE(LabelRef("block"))
		CMPQ(i, n)
		JEQ(LabelRef("equal"))
		MOVQ(last, i)
		JMP(LabelRef("block"))

		Comment("The difference is in this block.")
		Label("differs")
		low, high := joinMasks(eq[0], eq[1]), joinMasks(eq[2], eq[3])
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
		LEAQ(Mem{Base: n, Disp: -vector}, last)
		Label("vector")
		eq := YMM()
		VPCMPEQB(Mem{Base: p, Index: i, Scale: 1}, first, eq)
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
