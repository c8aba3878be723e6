// Command _gen writes the amd64 kernels of package simd, one function for each file here. The
// kernels of AVX2 and of AVX-512 go to a file each: the flag -kernels names one of them.
//
// "go generate" runs it in the directory above, see doc.go there. It is a module of its own,
// so that its assembler library does not enter the module graph of programs that import
// hitline.
package main

import (
	"flag"
	"log"

	. "github.com/mmcloughlin/avo/build"
)

// vector is the width of a YMM register in bytes.
const vector = 32

func main() {
	kernels := flag.String("kernels", "avx2", "the kernels to write: avx2 or avx512")
	flag.Parse()
	ConstraintExpr("!purego,!race") // the race detector sees reads in Go only
	switch *kernels {
	case "avx2":
		equalBytes()
		matchTags()
		prefetch()
		digest("sumProductsAVX2", 16)
	case "avx512":
		digest("sumProductsAVX512", 64)
	default:
		log.Fatalf("no kernels have the name %q", *kernels)
	}
	Generate()
}
