//go:build !amd64 || purego

package simd

// equalBytes returns the number of leading bytes that are equal in a and b, which have one
// length.
func equalBytes(a, b []byte) int { return equalBytesGeneric(a, b) }

// availableKernels names the kernels of this build that this processor can run, best first.
func availableKernels() []string { return []string{kernelGeneric} }

// currentKernel names the kernel in use.
func currentKernel() string { return kernelGeneric }

// useKernel switches to a kernel that availableKernels names: there is only one.
func useKernel(string) {}
