package main

import (
	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// measureCommands are those that are there on Linux only.
func (a *app) measureCommands() []*cobra.Command {
	return []*cobra.Command{a.runCommand(), a.compareCommand(), a.crowdCommand(), a.storyCommand(), a.rawServerCommand()}
}

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

// findEngines finds hitline and the Python of simulated or real engines, and sets their paths.
func findEngines(hitline, python *string) (err error) {
	if *hitline, err = findHitline(*hitline); err != nil {
		return err
	}
	*python, err = findProgram("python", *python, "python3", "install one, or name it with --python")
	return err
}
