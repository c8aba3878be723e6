// Command _gen writes the AVX2 kernels of package simd, one function for each file here.
//
// "go generate" runs it in the directory above, see doc.go there. It is a module of its own,
// so that its assembler library does not enter the module graph of programs that import
// hitline.
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
	prefetch()
	Generate()
}
