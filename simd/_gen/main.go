// Command _gen writes the AVX2 kernels of package simd, one function for each file here.
//
// It is run by "go generate" in the directory above; see the note on generated files there.
// It lives in a module of its own, so that the assembler library it is built on never
// enters the module graph of whoever imports hitline.
package main

import (
	. "github.com/mmcloughlin/avo/build"
)

// vector is the width of a YMM register in bytes.
const vector = 32

func main() {
	ConstraintExpr("!purego")
	equalBytes()
	runBytes()
	equalStrided()
	matchTags()
	Generate()
}
