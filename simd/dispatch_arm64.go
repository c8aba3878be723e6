//go:build !purego && !race

package simd

import "github.com/klauspost/cpuid/v2"

var (
	// useNEON is true while the NEON kernel is in use. Every processor that runs Go's arm64
	// code supports it. useKernel writes it, every call reads it.
	useNEON = true

	// hasPMULL is true if the processor multiplies polynomials of 64 bits, an option of NEON.
	hasPMULL = cpuid.CPU.Supports(cpuid.PMULL)
)

// blockBytesNEON is the length, in bytes, of the blocks of the NEON kernels.
//
// No arm64 machine was available to time the kernels, so their instructions were counted
// (go tool objdump, Go 1.26). With NEON and in portable Go, one iteration has 15 and 54
// instructions for a block of two arrays, 13 and 49 for the tags of one bucket. 128 bytes of a
// digest have 51 with NEON, and over 2,000 in portable Go.
const blockBytesNEON = 64

// equalBytes is equalBytesGeneric with the kernel in use.
func equalBytes(a, b []byte) int {
	i := 0
	if n := len(a) &^ (blockBytesNEON - 1); useNEON && n > 0 {
		i = equalBlocksNEON(&a[0], &b[0], n)
	}
	return i + equalBytesGeneric(a[i:], b[i:])
}

// matchTags is matchTagsGeneric with the kernel in use.
func matchTags(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {
	if useNEON {
		matchTagsNEON(&masks[0], &buckets[0], &tags[0], len(tags))
		return
	}
	matchTagsGeneric(masks, buckets, tags)
}

// prefetch starts to fetch n lines. The portable version does nothing.
func prefetch(lines **byte, n int) {
	if useNEON {
		prefetchNEON(lines, n)
	}
}

// sumProducts is sumProductsGeneric with the kernel in use.
func sumProducts(sum *[4]uint64, secret *[MaxDigestBytes / 8]uint64, message []byte) {
	if useNEON && hasPMULL {
		sumProductsNEON(sum, &secret[0], &message[0], len(message))
		return
	}
	sumProductsGeneric(sum, secret, message)
}

// fastDigest is FastDigest.
func fastDigest() bool { return useNEON && hasPMULL }

// availableKernels returns the kernels of this build that this processor can run, best first.
func availableKernels() []string { return []string{kernelNEON, kernelGeneric} }

// currentKernel returns the name of the kernel in use.
func currentKernel() string {
	if useNEON {
		return kernelNEON
	}
	return kernelGeneric
}

// useKernel switches to a kernel that availableKernels returns.
func useKernel(name string) {
	useNEON = name == kernelNEON
}
