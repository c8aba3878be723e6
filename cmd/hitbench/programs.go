package main

import (
	"fmt"
	"os"

	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// findProgram returns the path of a program: the one that a flag names, or without one that of
// this name beside this program or on PATH. todo says what to do if there is none.
func findProgram(flag, named, name, todo string) (string, error) {
	path, err := process.FindProgram(named, name, todo)
	if err != nil {
		return "", cli.Usagef("--%s: %w", flag, err)
	}
	return path, nil
}

// findHitline returns the path of hitline.
func findHitline(named string) (string, error) {
	return findProgram("hitline", named, "hitline", "build it, or name it with --hitline")
}

// executable returns the path of this program, which is its own server in a comparison.
func executable() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot tell where this program is: %w", err)
	}
	return self, nil
}
