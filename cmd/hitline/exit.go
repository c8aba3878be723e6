package main

import (
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/api"
)

// Exit codes of all commands.
const (
	exitDone         = cli.ExitDone
	exitFailed       = cli.ExitFailed
	exitUsage        = cli.ExitUsage
	exitNoConnection = cli.ExitLost
)

// exitCode returns the exit code for an error, or for none.
func exitCode(err error) int { return cli.Program{}.ExitCode(err) }

// usagef returns an error of wrong usage of the command line, for which --help helps.
func usagef(format string, args ...any) error { return cli.Usagef(format, args...) }

// configError makes err one of a wrong configuration or input file.
func configError(err error) error { return cli.WithClass(err, api.ErrConfig) }
