//go:build !purego

package simd

// builtKernels has the kernels that this build contains, on any processor.
var builtKernels = []string{kernelAVX2, kernelGeneric}
