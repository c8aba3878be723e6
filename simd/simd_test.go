package simd

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// TestMain runs the tests with the kernel that HITLINE_KERNEL names, as a program would.
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

// eachKernel runs f once for each kernel, as the subtest kernel=NAME, and puts the kernel
// back that was in use before.
//
// If HITLINE_KERNEL names a kernel, that is the only one. Otherwise a kernel that this
// build should contain and this processor cannot run is skipped on an ordinary machine, but
// fails where CI=true, so that no kernel goes untested in silence.
func eachKernel[T runner[T]](t T, f func(T)) {
	t.Helper()
	before := Kernel()
	defer func() {
		if err := Force(before); err != nil {
			t.Fatal(err)
		}
	}()

	names := slices.Compact(slices.Sorted(slices.Values(append(Kernels(), builtKernels...))))
	if forced := os.Getenv(envKernel); forced != "" {
		names = []string{forced}
	}
	for _, name := range names {
		t.Run("kernel="+name, func(t T) {
			if err := Force(name); err != nil {
				if os.Getenv("CI") == "true" {
					t.Fatalf("%v: a CI machine must run every kernel of the build", err)
				}
				t.Skip(err)
			}
			f(t)
		})
	}
}
