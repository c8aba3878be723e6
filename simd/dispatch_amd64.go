//go:build !purego

package simd

import "github.com/klauspost/cpuid/v2"

var (
	// hasAVX2 says that the processor has AVX2 and the operating system keeps the wide
	// registers across context switches.
	hasAVX2 = cpuid.CPU.Supports(cpuid.AVX2)

	// useAVX2 says that the AVX2 kernels are in use. It is written at package initialisation
	// and by useKernel, and read by every call.
	useAVX2 = hasAVX2
)

// minAVX2 is the shortest run, in bytes, that goes to the AVX2 kernel: one vector, the
// least that it accepts. No higher bound is needed, as the kernel wins from there on: one
// call on 32 equal bytes takes 9.0 ns with it and 10.4 ns without, on 128 bytes 10.1 and
// 14.2 (BenchmarkEqualPrefix, Intel Xeon, family 6 model 207, Go 1.26, medians of 6).
const minAVX2 = 32

// equalBytes returns the number of leading bytes that are equal in a and b, which have one
// length.
func equalBytes(a, b []byte) int {
	if useAVX2 && len(a) >= minAVX2 {
		return equalBytesAVX2(&a[0], &b[0], len(a))
	}
	return equalBytesGeneric(a, b)
}

// runBytes is runBytesGeneric with the kernel in use. A run of 32 elements takes 7.7 ns with
// AVX2 and 11.3 ns without, of 2,048 54 and 160, of 8,192 195 and 638
// (BenchmarkRunLength16, lower quartiles of 9 interleaved runs, same machine).
func runBytes(b []byte) int {
	if useAVX2 && len(b) >= minAVX2 {
		return runBytesAVX2(&b[0], len(b))
	}
	return runBytesGeneric(b)
}

// equalStrided is equalStridedGeneric with the kernel in use. Four hashes of 32 bytes, every
// second one of an array, take 11 ns with AVX2 and 13 without, 16 take 13 and 30, 2,048 take
// 1,700 and 3,500 (BenchmarkEqualPrefixStrided, best of 9 interleaved runs, same machine).
// Hashes of another length have only the portable version.
func equalStrided(a []byte, aStep int, b []byte, bStep int, hashLen, n int) int {
	if useAVX2 && hashLen == 32 {
		return equalStrided32AVX2(&a[0], aStep, &b[0], bStep, n)
	}
	return equalStridedGeneric(a, aStep, b, bStep, hashLen, n)
}

// matchTags is matchTagsGeneric with the kernel in use. A key of a batch of 64 takes 3.4 ns
// with AVX2 and 6.8 without if the table is in the second-level cache; in tables of 16 and
// 160 MiB 7.3 and 10.8, 19.7 and 23.3 (BenchmarkMatchTags, as above). A prefetch of all
// buckets before the call made the cold ones no faster and the others slower by up to a
// tenth.
func matchTags(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {
	if useAVX2 {
		matchTagsAVX2(&masks[0], &buckets[0], &tags[0], len(tags))
		return
	}
	matchTagsGeneric(masks, buckets, tags)
}

// availableKernels names the kernels of this build that this processor can run, best first.
func availableKernels() []string {
	if hasAVX2 {
		return []string{kernelAVX2, kernelGeneric}
	}
	return []string{kernelGeneric}
}

// currentKernel names the kernel in use.
func currentKernel() string {
	if useAVX2 {
		return kernelAVX2
	}
	return kernelGeneric
}

// useKernel switches to a kernel that availableKernels names.
func useKernel(name string) {
	useAVX2 = name == kernelAVX2
}
