//go:build !purego

package simd

// builtKernels names the kernels that this build contains, whatever the processor.
var builtKernels = []string{kernelGeneric, kernelNEON}
