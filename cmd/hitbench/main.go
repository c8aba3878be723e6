// Command hitbench puts load on a hitline server, measures it and checks its
// answers.
//
// Every subcommand exits with 0 when it is done, 1 when an answer was wrong or
// refused or the run was interrupted, 2 on wrong usage or bad input, and 3 when
// there was no connection or it was lost. With --json it prints exactly one line
// of JSON on standard output; all else goes to standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/picture"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/lookup/client"
)

const (
	exitDone  = 0
	exitBad   = 1
	exitUsage = 2
	exitLost  = 3
)

// errUsage marks wrong flags and arguments.
var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	context.AfterFunc(ctx, func() { afterGrace(stop) })
	a := app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, dial: dial}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// endSignals returns the signals that end the program in good order. SIGHUP, which comes when
// a terminal closes, is one of them unless the program was started to ignore it, as by nohup(1).
func endSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// afterGrace calls stop a second after the first signal; from then on a signal
// ends the program at once. Before that it is ignored, because timeout(1) sends
// two in a row, to the process and to its group.
func afterGrace(stop func()) {
	time.Sleep(time.Second)
	stop()
}

// app holds what the commands reach the world through.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	dial           dialFunc
}

// run runs the command line args, without the program's name, and returns the
// exit code. It ends early when ctx is done.
func (a *app) run(ctx context.Context, args []string) int {
	var failed error // what a subcommand returned; what cobra returns is wrong usage
	root := &cobra.Command{
		Use:           "hitbench",
		Short:         "Load, measure and check a hitline server",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.DisableSuggestions = true // they span lines
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(a.replayCommand(&failed), a.indexCommand(&failed), a.floorCommand(&failed), a.floorServerCommand(&failed))
	root.AddCommand(a.runCommand(&failed))
	root.AddCommand(a.pictureCommand(&failed), a.scaleCommand(&failed))
	root.AddCommand(a.compareCommand(&failed), a.compareServerCommand(&failed))
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	ran, err := root.ExecuteContextC(ctx)
	if err != nil {
		failed = fmt.Errorf("%w: %w; see %s --help", errUsage, err, ran.CommandPath())
	}
	return a.exit(ctx, failed)
}

// exit says on standard error what failed, if anything did, and returns the
// exit code for it.
func (a *app) exit(ctx context.Context, err error) int {
	code := exitBad
	switch {
	case err == nil:
		return exitDone
	case ctx.Err() != nil: // whatever else failed, failed of it
		err = errors.New("interrupted")
	case errors.Is(err, errUsage), errors.Is(err, measure.ErrOptions), errors.Is(err, workload.ErrTrace), errors.Is(err, picture.ErrInput),
		errors.Is(err, client.ErrRequest): // an address of no known form
		code = exitUsage
	case errors.Is(err, client.ErrConnect), errors.Is(err, client.ErrNoAnswer), errors.Is(err, measure.ErrLost), errors.Is(err, measure.ErrLost), errors.Is(err, measure.ErrLost), errors.Is(err, measure.ErrLost), errors.Is(err, measure.ErrLost), errors.Is(err, context.DeadlineExceeded):
		code = exitLost
	}
	text := err.Error()
	for _, prefix := range []string{"indexbench: ", "floor: ", "compare: ", "holders: ", "vllm: ", "load: ", "picture: ", "scale: ", "bench: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	fmt.Fprintf(a.stderr, "hitbench: %s\n", text)
	return code
}
