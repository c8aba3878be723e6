package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// matchTags compares each of a batch of tags with the ten tags of its bucket.
//
// The tags of a bucket are 20 bytes. Eight of them are one vector. The other two are loaded
// as one word of 32 bits, so that nothing after them is read. Both results are packed into
// one vector, one byte for each tag.
func matchTags() {
	TEXT("matchTagsAVX2", NOSPLIT, "func(masks *uint16, buckets **[10]uint16, tags *uint16, n int)")
	Pragma("noescape")
	Doc(
		"matchTagsAVX2 sets bit k of masks[i] if buckets[i][k] is tags[i] and clears all",
		"others, for i from 0 to n-1. It needs AVX2 and n >= 1.",
	)
	masks := Load(Param("masks"), GP64())
	buckets := Load(Param("buckets"), GP64())
	tags := Load(Param("tags"), GP64())
	n := Load(Param("n"), GP64())
	i, bucket, mask := GP64(), GP64(), GP32()
	XORQ(i, i)
	Label("next")
	MOVQ(Mem{Base: buckets, Index: i, Scale: 8}, bucket)
	tag, eight, two := XMM(), XMM(), XMM()
	VPBROADCASTW(Mem{Base: tags, Index: i, Scale: 2}, tag)
	VPCMPEQW(Mem{Base: bucket}, tag, eight)
	VMOVD(Mem{Base: bucket, Disp: 16}, two)
	VPCMPEQW(two, tag, two)
	VPACKSSWB(two, eight, eight)
	VPMOVMSKB(eight, mask)
	ANDL(U32(0x3FF), mask)
	MOVW(mask.As16(), Mem{Base: masks, Index: i, Scale: 2})
	INCQ(i)
	CMPQ(i, n)
	JLT(LabelRef("next"))
	RET()
}
