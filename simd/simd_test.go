package simd

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// TestMain lets HITLINE_KERNEL choose the kernel, as a program does.
func TestMain(m *testing.M) {
	if err := ForceFromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// runner is what *testing.T and *testing.B have in common here.
type runner[T any] interface {
	testing.TB
	Run(name string, f func(T)) bool
}

// forEachKernel runs f once for each kernel, as the subtest kernel=NAME, and then restores
// the kernel that was in use.
//
// If HITLINE_KERNEL is set, only that kernel runs. A kernel of this build that this
// processor cannot run is skipped. With CI=true it fails instead, so that no kernel stays
// untested unnoticed. Only the AVX-512 kernel may be missing there: few machines have it.
func forEachKernel[T runner[T]](t T, f func(T)) {
	t.Helper()
	before := Kernel()
	defer func() {
		if err := Force(before); err != nil {
			t.Fatal(err)
		}
	}()

	names := slices.Compact(slices.Sorted(slices.Values(append(Kernels(), builtKernels...))))
	if forced := os.Getenv(kernelEnv); forced != "" {
		names = []string{forced}
	}
	for _, name := range names {
		t.Run("kernel="+name, func(t T) {
			if err := Force(name); err != nil {
				if os.Getenv("CI") == "true" && name != kernelAVX512 {
					t.Fatalf("%v: a CI machine must run every kernel of the build", err)
				}
				t.Skip(err)
			}
			f(t)
		})
	}
}
