//go:build !purego && !race

package simd

// builtKernels has the kernels that this build contains, on any processor.
var builtKernels = []string{kernelAVX512, kernelAVX2, kernelGeneric}
