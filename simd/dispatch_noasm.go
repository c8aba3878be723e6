//go:build (!amd64 && !arm64) || purego || race

package simd

// equalBytes is equalBytesGeneric, the only one.
func equalBytes(a, b []byte) int { return equalBytesGeneric(a, b) }

// matchTags is matchTagsGeneric, the only one.
func matchTags(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {
	matchTagsGeneric(masks, buckets, tags)
}

// prefetch does nothing.
func prefetch(**byte, int) {}

// sumProducts is sumProductsGeneric, the only one.
func sumProducts(sum *[4]uint64, secret *[MaxDigestBytes / 8]uint64, message []byte) {
	sumProductsGeneric(sum, secret, message)
}

// fastDigest is FastDigest.
func fastDigest() bool { return false }

// availableKernels returns the kernels of this build that this processor can run, best first.
func availableKernels() []string { return []string{kernelGeneric} }

// currentKernel returns the name of the kernel in use.
func currentKernel() string { return kernelGeneric }

// useKernel switches to a kernel that availableKernels returns: there is only one.
func useKernel(string) {}
