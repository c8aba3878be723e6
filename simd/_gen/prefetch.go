package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// prefetch starts to fetch the cache line of each address.
//
// A prefetch retires before its line arrives, so a loop of them starts as many fetches as the
// processor has buffers for. Loads would hold up all that follows until the first one is
// complete.
func prefetch() {
	TEXT("prefetchAVX2", NOSPLIT, "func(lines **byte, n int)")
	Pragma("noescape")
	Doc(
		"prefetchAVX2 starts to fetch the cache lines of lines[0] to lines[n-1] into the",
		"first-level cache. It needs n >= 1.",
	)
	lines := Load(Param("lines"), GP64())
	n := Load(Param("n"), GP64())
	address := GP64()
	LEAQ(Mem{Base: lines, Index: n, Scale: 8}, lines)
	NEGQ(n)
	Label("next")
	MOVQ(Mem{Base: lines, Index: n, Scale: 8}, address)
	PREFETCHT0(Mem{Base: address})
	INCQ(n)
	JNZ(LabelRef("next"))
	RET()
}
