//go:build (!amd64 && !arm64) || purego

package simd

// builtKernels names the kernels that this build contains, whatever the processor.
var builtKernels = []string{kernelGeneric}
