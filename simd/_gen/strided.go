package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// equalStrided compares hashes of 32 bytes, one vector each, that lie at a fixed distance
// from one another.
//
// As in equalBytes, four results are joined before the branch. The hashes of one turn are
// reached from one address: no step, one step and two are addressing modes, three is a
// register. What is left behind the last four is done one by one: moving back, as
// equalBytes does, would need a division.
func equalStrided() {
	TEXT("equalStrided32AVX2", NOSPLIT, "func(a *byte, aStep int, b *byte, bStep, n int) int")
	Pragma("noescape")
	Doc(
		"equalStrided32AVX2 returns the number of leading hashes of 32 bytes that are equal,",
		"at most n, where hash k of a is at a[k*aStep:] and hash k of b at b[k*bStep:]. It",
		"needs AVX2, and reads nothing but the n hashes of each.",
	)

	a := Load(Param("a"), GP64())
	aStep := Load(Param("aStep"), GP64())
	b := Load(Param("b"), GP64())
	bStep := Load(Param("bStep"), GP64())
	n := Load(Param("n"), GP64())

	// left is how many hashes are left beyond the four of the next turn.
	left, a3, b3 := GP64(), GP64(), GP64()
	MOVQ(n, left)
	LEAQ(Mem{Base: aStep, Index: aStep, Scale: 2}, a3)
	LEAQ(Mem{Base: bStep, Index: bStep, Scale: 2}, b3)
	SUBQ(Imm(4), left)
	JL(LabelRef("rest"))

	hash := func(base, step, three Register, k int) Mem {
		switch k {
		case 0:
			return Mem{Base: base}
		case 3:
			return Mem{Base: base, Index: three, Scale: 1}
		}
		return Mem{Base: base, Index: step, Scale: uint8(k)}
	}

	Comment("Four hashes a turn.")
	Label("four")
	{
		eq := [4]VecVirtual{YMM(), YMM(), YMM(), YMM()}
		for k := range eq {
			VMOVDQU(hash(a, aStep, a3, k), eq[k])
		}
		for k := range eq {
			VPCMPEQB(hash(b, bStep, b3, k), eq[k], eq[k])
		}
		all, right := YMM(), YMM()
		VPAND(eq[0], eq[1], all)
		VPAND(eq[2], eq[3], right)
		VPAND(all, right, all)
		mask := GP32()
		VPMOVMSKB(all, mask)
		INCL(mask)
		JNZ(LabelRef("rest")) // which looks at them one by one
		LEAQ(Mem{Base: a, Index: aStep, Scale: 4}, a)
		LEAQ(Mem{Base: b, Index: bStep, Scale: 4}, b)
		SUBQ(Imm(4), left)
		JGE(LabelRef("four"))
	}

	Comment("One hash a turn: the last ones, or those of the four that had the difference.")
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
		ADDQ(aStep, a)
		ADDQ(bStep, b)
		DECQ(left)
		JMP(LabelRef("one"))
	}

	Comment("What is left was not found equal.")
	Label("done")
	SUBQ(left, n)
	VZEROUPPER()
	Store(n, ReturnIndex(0))
	RET()
}
