package simd

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKernels(t *testing.T) {
	names := Kernels()
	require.Contains(t, names, kernelGeneric)
	require.Contains(t, names, Kernel())
	require.Subset(t, builtKernels, names)
	require.Subset(t, knownKernels, builtKernels)

	names[0] = "scribble"
	require.NotContains(t, Kernels(), "scribble", "the slice is the caller's own")
}

// foreignKernel names a kernel that exists but not in this build.
func foreignKernel(t *testing.T) string {
	t.Helper()
	for _, name := range knownKernels {
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

	foreign := foreignKernel(t)

	// A refusal changes nothing and says what would have been possible.
	for _, before := range Kernels() {
		require.NoError(t, Force(before))
		for name, want := range map[string]error{
			"sse9":  ErrUnknownKernel,
			"AVX2":  ErrUnknownKernel,
			"":      ErrUnknownKernel,
			foreign: ErrUnsupportedKernel,
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
		t.Setenv(envKernel, "")
		require.NoError(t, ForceFromEnv())
		require.Equal(t, before, Kernel(), "an empty value chooses nothing")

		t.Setenv(envKernel, kernelGeneric)
		require.NoError(t, ForceFromEnv())
		require.Equal(t, kernelGeneric, Kernel())
	}

	t.Setenv(envKernel, "sse9")
	err := ForceFromEnv()
	require.ErrorIs(t, err, ErrUnknownKernel)
	require.ErrorContains(t, err, envKernel)

	t.Setenv(envKernel, foreignKernel(t))
	require.ErrorIs(t, ForceFromEnv(), ErrUnsupportedKernel)
}
