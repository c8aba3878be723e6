//go:build (!amd64 && !arm64) || purego || race

package simd

// builtKernels has the kernels that this build contains, on any processor.
var builtKernels = []string{kernelGeneric}
