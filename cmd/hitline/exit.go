package main

import (
	"errors"
	"net"

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

// startError makes err one of a wrong configuration, unless the network refused: what is so now, such as a port that is
// taken or a host without an address, may be otherwise at the next try.
func startError(err error) error {
	var network net.Error
	if errors.As(err, &network) {
		return err
	}
	return configError(err)
}
