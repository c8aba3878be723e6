package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// equalStrided compares hashes of 32 bytes, one vector each, at fixed strides.
//
// As in equalBytes, four results are joined before the branch. The four hashes are addressed
// from one base: none, one or two strides are addressing modes, three strides are a
// register. The hashes after the last four are compared one by one: moving back, as
// equalBytes does, would need a division.
func equalStrided() {
	TEXT("equalStrided32AVX2", NOSPLIT, "func(a *byte, aStride int, b *byte, bStride, n int) int")
	Pragma("noescape")
	Doc(
		"equalStrided32AVX2 returns the number of leading hashes of 32 bytes that are equal,",
		"at most n, where hash k of a is at a[k*aStride:] and hash k of b at b[k*bStride:]. It",
		"needs AVX2, and reads nothing but the n hashes of each.",
	)

	a := Load(Param("a"), GP64())
	aStride := Load(Param("aStride"), GP64())
	b := Load(Param("b"), GP64())
	bStride := Load(Param("bStride"), GP64())
	n := Load(Param("n"), GP64())

	// left is the number of hashes after the four of the next iteration.
	left, a3, b3 := GP64(), GP64(), GP64()
	MOVQ(n, left)
	LEAQ(Mem{Base: aStride, Index: aStride, Scale: 2}, a3)
	LEAQ(Mem{Base: bStride, Index: bStride, Scale: 2}, b3)
	SUBQ(Imm(4), left)
	JL(LabelRef("rest"))

	hash := func(base, stride, three Register, k int) Mem {
		switch k {
		case 0:
			return Mem{Base: base}
		case 3:
			return Mem{Base: base, Index: three, Scale: 1}
		}
		return Mem{Base: base, Index: stride, Scale: uint8(k)}
	}

	Comment("Four hashes per iteration.")
	Label("four")
	{
		eq := [4]VecVirtual{YMM(), YMM(), YMM(), YMM()}
		for k := range eq {
			VMOVDQU(hash(a, aStride, a3, k), eq[k])
		}
		for k := range eq {
			VPCMPEQB(hash(b, bStride, b3, k), eq[k], eq[k])
		}
		all, right := YMM(), YMM()
		VPAND(eq[0], eq[1], all)
		VPAND(eq[2], eq[3], right)
		VPAND(all, right, all)
		mask := GP32()
		VPMOVMSKB(all, mask)
		INCL(mask)
		JNZ(LabelRef("rest")) // compares them one by one
		LEAQ(Mem{Base: a, Index: aStride, Scale: 4}, a)
		LEAQ(Mem{Base: b, Index: bStride, Scale: 4}, b)
		SUBQ(Imm(4), left)
		JGE(LabelRef("four"))
	}

	Comment("One hash per iteration: the last ones, or the four that have the difference.")
	Label("rest")
	ADDQ(Imm(4), left)
	Label("one")
	{
		TESTQ(left, left)
		JZ(LabelRef("done"))
		eq := YMM()
		VMOVDQU(Mem{Base: a}, eq)
		VPCMPEQB(Mem{Base: b}, eq, eq)
		mask := GP32()
		VPMOVMSKB(eq, mask)
		INCL(mask)
		JNZ(LabelRef("done"))
		ADDQ(aStride, a)
		ADDQ(bStride, b)
		DECQ(left)
		JMP(LabelRef("one"))
	}

	Comment("The hashes that are left were not found equal.")
	Label("done")
	SUBQ(left, n)
	VZEROUPPER()
	Store(n, ReturnIndex(0))
	RET()
}
