package simd

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKernels(t *testing.T) {
	names := Kernels()
	require.Contains(t, names, kernelGeneric)
	require.Contains(t, names, Kernel())
	require.Subset(t, builtKernels, names)
	require.Subset(t, allKernels, builtKernels)

	names[0] = "changed"
	require.NotContains(t, Kernels(), "changed", "the slice belongs to the caller")
}

// unsupportedKernel returns a kernel of another build.
func unsupportedKernel(t *testing.T) string {
	t.Helper()
	for _, name := range allKernels {
		if !slices.Contains(builtKernels, name) {
			return name
		}
	}
	t.Fatal("this build contains every kernel")
	return ""
}

func TestForce(t *testing.T) {
	defer func(name string) { require.NoError(t, Force(name)) }(Kernel())

	for _, name := range Kernels() {
		require.NoError(t, Force(name))
		require.Equal(t, name, Kernel())
	}

	unsupported := unsupportedKernel(t)

	// A failure changes nothing, and its error lists the possible kernels.
	for _, before := range Kernels() {
		require.NoError(t, Force(before))
		for name, want := range map[string]error{
			"sse9":      ErrUnknownKernel,
			"AVX2":      ErrUnknownKernel,
			"":          ErrUnknownKernel,
			unsupported: ErrUnsupportedKernel,
		} {
			err := Force(name)
			require.ErrorIs(t, err, want, "name %q", name)
			for _, possible := range Kernels() {
				require.ErrorContains(t, err, possible)
			}
			require.Equal(t, before, Kernel())
		}
	}
}

func TestForceFromEnv(t *testing.T) {
	defer func(name string) { require.NoError(t, Force(name)) }(Kernel())

	for _, before := range Kernels() {
		require.NoError(t, Force(before))
		t.Setenv(kernelEnv, "")
		require.NoError(t, ForceFromEnv())
		require.Equal(t, before, Kernel(), "an empty value chooses nothing")

		t.Setenv(kernelEnv, kernelGeneric)
		require.NoError(t, ForceFromEnv())
		require.Equal(t, kernelGeneric, Kernel())
	}

	t.Setenv(kernelEnv, "sse9")
	err := ForceFromEnv()
	require.ErrorIs(t, err, ErrUnknownKernel)
	require.ErrorContains(t, err, kernelEnv)

	t.Setenv(kernelEnv, unsupportedKernel(t))
	require.ErrorIs(t, ForceFromEnv(), ErrUnsupportedKernel)
}

func ExampleForce() {
	err := Force("sse9")
	fmt.Println(errors.Is(err, ErrUnknownKernel), errors.Is(err, ErrUnsupportedKernel))
	// Output: true false
}
