//go:build !purego

package simd

import "github.com/klauspost/cpuid/v2"

var (
	// hasAVX2 says that the processor has AVX2 and the operating system keeps the wide
	// registers across context switches.
	hasAVX2 = cpuid.CPU.Supports(cpuid.AVX2)

	// useAVX2 says that the AVX2 kernel is in use. It is written at package initialisation
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
