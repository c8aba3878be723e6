package simd

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The names of the kernels, as reported by Kernel and accepted by Force.
const (
	kernelGeneric = "generic"
	kernelAVX2    = "avx2"
	kernelNEON    = "neon"
)

// knownKernels is every name that some build for some processor accepts. It tells a
// mistyped name from one that is right but not for here.
var knownKernels = []string{kernelAVX2, kernelGeneric, kernelNEON}

// envKernel is the environment variable that ForceFromEnv reads.
const envKernel = "HITLINE_KERNEL"

// Errors of Force and ForceFromEnv; match them with errors.Is.
var (
	// ErrUnknownKernel: no kernel has this name, in any build.
	ErrUnknownKernel = errors.New("simd: unknown kernel")

	// ErrUnsupportedKernel: the kernel exists, but this processor cannot run it or this
	// build does not contain it.
	ErrUnsupportedKernel = errors.New("simd: unsupported kernel")
)

// Kernel returns the name of the kernel in use.
func Kernel() string { return currentKernel() }

// Kernels returns the names of the kernels that this build contains and this processor can
// run, best first; the first is in use unless Force chose another. There is always at least
// "generic". The slice belongs to the caller.
func Kernels() []string { return availableKernels() }

// Force makes the named kernel the one in use. The error is ErrUnknownKernel or
// ErrUnsupportedKernel, wrapped together with the names that are possible, and then nothing
// has changed.
//
// Force is for the start of a program and for tests. It must not be called while another
// goroutine uses this package.
func Force(name string) error {
	available := availableKernels()
	if slices.Contains(available, name) {
		useKernel(name)
		return nil
	}
	reason := ErrUnknownKernel
	if slices.Contains(knownKernels, name) {
		reason = ErrUnsupportedKernel
	}
	return fmt.Errorf("%w %q (possible here: %s)", reason, name, strings.Join(available, ", "))
}

// ForceFromEnv calls Force with the value of the environment variable HITLINE_KERNEL, and
// does nothing if that is empty or not set. Its errors are those of Force and name the
// variable. The rule of Force on concurrent use holds.
//
// The package does not read the variable by itself, so that a bad value is an error for the
// program to report and not a panic before main.
func ForceFromEnv() error {
	name := os.Getenv(envKernel)
	if name == "" {
		return nil
	}
	if err := Force(name); err != nil {
		return fmt.Errorf("%w, from the environment variable %s", err, envKernel)
	}
	return nil
}
