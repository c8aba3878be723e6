//go:build !purego && !race

package simd

import "github.com/klauspost/cpuid/v2"

var (
	// hasAVX2 is true if the processor has AVX2 and the operating system saves the wide
	// registers across context switches.
	hasAVX2 = cpuid.CPU.Supports(cpuid.AVX2)

	// hasPCLMUL is true if the processor also has carry-less multiplication, which the AVX2
	// kernel of digests needs.
	hasPCLMUL = cpuid.CPU.Supports(cpuid.AVX2, cpuid.CLMUL)

	// hasAVX512 is true if the processor has what the AVX-512 kernel needs, and the operating
	// system saves these registers too.
	hasAVX512 = cpuid.CPU.Supports(cpuid.AVX2, cpuid.AVX512F, cpuid.AVX512BW, cpuid.VPCLMULQDQ)

	// useAVX2 and useAVX512 are true while these kernels are in use. useAVX512 implies
	// useAVX2: one function has an AVX-512 kernel, the others use AVX2. Package
	// initialisation and useKernel write both, every call reads them.
	useAVX2, useAVX512 = hasAVX2, hasAVX512
)

// minBytesAVX2 is the least number of bytes that the AVX2 kernels accept: one vector. They are
// faster from there on. One call on 32 equal bytes takes 9.0 ns with AVX2 and 10.4 ns
// without; on 128 bytes 10.1 and 14.2 ns (BenchmarkEqualPrefix, Intel Xeon, family 6 model
// 207, Go 1.26, medians of 6).
const minBytesAVX2 = 32

// equalBytes is equalBytesGeneric with the kernel in use.
func equalBytes(a, b []byte) int {
	if useAVX2 && len(a) >= minBytesAVX2 {
		return equalBytesAVX2(&a[0], &b[0], len(a))
	}
	return equalBytesGeneric(a, b)
}

// matchTags is matchTagsGeneric with the kernel in use. With AVX2 and without, a key of a
// batch of 64 takes 3.4 and 6.8 ns if the table is in the second-level cache, 7.3 and 10.8 ns
// in a table of 16 MiB, 19.7 and 23.3 ns in one of 160 MiB (BenchmarkMatchTags, as above). A
// prefetch of all buckets before the call made cold buckets no faster and cached ones up to
// a tenth slower.
func matchTags(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {
	if useAVX2 {
		matchTagsAVX2(&masks[0], &buckets[0], &tags[0], len(tags))
		return
	}
	matchTagsGeneric(masks, buckets, tags)
}

// prefetch starts to fetch n lines. The portable version does nothing. The gain is seen in package
// index alone (BenchmarkProbe, order=random).
func prefetch(lines **byte, n int) {
	if useAVX2 {
		prefetchAVX2(lines, n)
	}
}

// sumProducts is sumProductsGeneric with the kernel in use. A digest of 2 KiB takes 28 ns with
// AVX-512, 90 ns with AVX2 and 4,300 ns without. To compare 2 KiB takes 28 ns if both sides
// are cached, and 170 ns if one is in memory (medians of 101 interleaved rounds, same
// machine). A kernel for VPCLMULQDQ in 32-byte vectors needs a processor without AVX-512 to
// measure on.
func sumProducts(sum *[4]uint64, secret *[MaxDigestBytes / 8]uint64, message []byte) {
	switch {
	case useAVX512:
		sumProductsAVX512(sum, &secret[0], &message[0], len(message))
	case useAVX2 && hasPCLMUL:
		sumProductsAVX2(sum, &secret[0], &message[0], len(message))
	default:
		sumProductsGeneric(sum, secret, message)
	}
}

// fastDigest is FastDigest.
func fastDigest() bool { return useAVX2 && hasPCLMUL || useAVX512 }

// availableKernels returns the kernels of this build that this processor can run, best first.
func availableKernels() []string {
	switch {
	case hasAVX512:
		return []string{kernelAVX512, kernelAVX2, kernelGeneric}
	case hasAVX2:
		return []string{kernelAVX2, kernelGeneric}
	}
	return []string{kernelGeneric}
}

// currentKernel returns the name of the kernel in use.
func currentKernel() string {
	switch {
	case useAVX512:
		return kernelAVX512
	case useAVX2:
		return kernelAVX2
	}
	return kernelGeneric
}

// useKernel switches to a kernel that availableKernels returns.
func useKernel(name string) {
	useAVX512 = name == kernelAVX512
	useAVX2 = name == kernelAVX2 || useAVX512
}
