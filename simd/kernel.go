package simd

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The names of the kernels, as Kernel returns and Force accepts them.
const (
	kernelGeneric = "generic"
	kernelAVX512  = "avx512"
	kernelAVX2    = "avx2"
	kernelNEON    = "neon"
)

// allKernels has the names of the kernels of all builds. Force uses it to tell a mistyped name
// from a kernel that is not supported here.
var allKernels = []string{kernelAVX512, kernelAVX2, kernelGeneric, kernelNEON}

// kernelEnv is the environment variable that ForceFromEnv reads.
const kernelEnv = "HITLINE_KERNEL"

// Errors of Force and ForceFromEnv; match them with errors.Is.
var (
	// ErrUnknownKernel means that no kernel of any build has this name.
	ErrUnknownKernel = errors.New("unknown kernel")

	// ErrUnsupportedKernel means that this processor cannot run the kernel, or that this
	// build does not contain it.
	ErrUnsupportedKernel = errors.New("unsupported kernel")
)

// Kernel returns the name of the kernel in use.
func Kernel() string { return currentKernel() }

// Kernels returns the names of the kernels that this build contains and this processor can
// run, best first. The first is in use unless Force chose another. "generic" is always one
// of them. The slice belongs to the caller.
func Kernels() []string { return availableKernels() }

// Force makes the named kernel the one in use. Its error wraps ErrUnknownKernel or
// ErrUnsupportedKernel and lists the possible names; then the kernel has not changed.
//
// Call Force when a program starts, or in tests. It must not run while another goroutine
// uses this package.
func Force(name string) error {
	available := availableKernels()
	if slices.Contains(available, name) {
		useKernel(name)
		return nil
	}
	reason := ErrUnknownKernel
	if slices.Contains(allKernels, name) {
		reason = ErrUnsupportedKernel
	}
	return fmt.Errorf("%w %q (possible here: %s)", reason, name, strings.Join(available, ", "))
}

// ForceFromEnv calls Force with the value of the environment variable HITLINE_KERNEL. It
// does nothing if the variable is empty or not set. Its errors are those of Force and name
// the variable. Like Force, it must not run while another goroutine uses this package.
//
// Package initialisation does not read the variable: so the program can report a bad value
// as an error, where the package could only panic.
func ForceFromEnv() error {
	name := os.Getenv(kernelEnv)
	if name == "" {
		return nil
	}
	if err := Force(name); err != nil {
		return fmt.Errorf("%w, from the environment variable %s", err, kernelEnv)
	}
	return nil
}
