// Command hitbench puts load on a hitline server, measures it and checks its
// answers.
//
// Every command exits with 0 when it is done, 1 when an answer was wrong or
// refused or the run was interrupted, 2 on wrong usage or bad input, and 3 when
// there was no connection or it was lost. With --json it prints exactly one line
// of JSON on standard output: its report, be it a partial one, or if there is
// none {"error": …, "exit": …}. All else goes to standard error.
//
// To add a command: its flags are a struct, which the functions of flags.go fill
// where other commands have the same flag; watch runs the measurement and
// shows how it goes, and app.finish prints the report and says which answers were wrong.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/cmd/internal/environ"
	"github.com/hitline/hitline/internal/buildinfo"
	"github.com/hitline/hitline/lookup/api"
)

func main() {
	ctx, stop := cli.NotifyContext(context.Background())
	a := app{stdout: os.Stdout, stderr: os.Stderr}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// app holds what the commands print to.
type app struct{ stdout, stderr io.Writer }

// run runs the command line args, without the program's name, and returns the
// exit code. It ends early when ctx is done.
func (a *app) run(ctx context.Context, args []string) int {
	program := cli.Program{
		Root:    a.rootCommand(),
		Usage:   []error{measure.ErrOptions},
		Input:   []error{workload.ErrTrace},
		Lost:    []error{measure.ErrLost},
		Signals: true,
	}
	return program.Run(ctx, args, os.Stdin, a.stdout, a.stderr)
}

// rootCommand returns the command tree.
func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "hitbench",
		Short: "Load, measure and check a hitline server",
		Long: `hitbench puts load on a hitline server, measures it, and checks every answer.
It starts a server of its own where the command says so; else it asks the one at
--connect or $HITLINE_ADDRESS. run, compare, crowd and story are there on Linux
only.

Exit codes: 0 done; 1 an answer was wrong or refused, or the run was
interrupted; 2 wrong usage or bad input; 3 no connection, or it was lost.`,
		Example: "  hitbench run --start\n  hitbench compare --hashes 512 --rounds 3",
		Version: buildinfo.Read().Version,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.HasParent() || cmd.Name() == "help" {
				return nil
			}
			return cli.WithClass(environ.Check(os.Environ()), api.ErrConfig)
		},
	}
	cli.AddGroup(root, "Measure", append(a.measureCommands(), a.replayCommand())...)
	cli.AddGroup(root, "Show", a.pictureCommand())
	root.AddCommand(cli.VersionCommand("hitbench"))
	cli.AddTopic(root, connectionTopic, "has the flags of connections",
		"run and replay connect to a server at --connect, or $HITLINE_ADDRESS.", func(flags *pflag.FlagSet) { connectionFlags(flags, new(connectflags.Flags)) })
	cli.Prepare(root)
	return root
}
