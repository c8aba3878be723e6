//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
)

// runFlags are the flags of hitbench run; written by cobra.
type runFlags struct {
	o       load.Options
	start   bool
	hitline string
	secure  connectflags.Flags
	json    bool
}

// runCommand returns the command.
func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Put load on a server, measure it and check every answer",
		Long: `Store chains of random hashes, look them up over and over, and check each
answer. The pool has one full-attention group. At a server of yours the chains
stay until it is reset; at one that is started each side has half of the cores.

Without --rate a connection asks again when an answer has come, which tells what
the server can carry. With --rate lookups fall due whether or not answers come,
and latency counts from then, as users see it; what could not be sent counts
with what it had waited, marked by ≥. Linux only.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the run was
interrupted; 2 wrong usage; 3 no connection, it was lost, or an answer was late.`,
		Example: `  hitbench run --connect 127.0.0.1:7557 -c 16 -d 30
  hitbench run --start -c 16 -r 1000,2000,4000 -d 2 --json`,
		Args: cli.NoArgs,
	}
	f.addFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.load(cmd.Context(), f, cmd.Flags().Changed)
	}
	return cmd
}

func (f *runFlags) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.IntVarP(&f.o.Connections, "connections", "c", 1, "connections")
	flags.IntVarP(&f.o.Pipeline, "pipeline", "P", 1, "requests under way on each connection")
	durationFlag(flags, &f.o.Duration, 10*time.Second, ", each rate")
	flags.Int64VarP(&f.o.Requests, "requests", "n", 0, "`number` of requests, instead of --duration")
	cli.DurationVarP(flags, &f.o.Warmup, "warmup", "", time.Second, "time before that, not measured")
	flags.Float64SliceVarP(&f.o.Rates, "rate", "r", nil, "requests a second, one or more `rates`")
	flags.Lookup("rate").DefValue = "" // help would show an empty list
	flags.IntVar(&f.o.Hashes, "hashes", 64, "hashes of a lookup")
	entriesFlag(flags, &f.o.Entries, 1_000_000, "")
	hitShareFlag(flags, &f.o.HitShare, 0.9)
	timeoutFlag(flags, &f.o.Timeout, 10*time.Second, "")
	seedFlag(flags, &f.o.Seed, 0)
	cli.JSONFlag(flags, &f.json)
	flags.BoolVar(&f.start, "start", false, "start a server for this run, and stop it at the end")
	hitlineFlag(flags, &f.hitline)
	serverFlags(flags, &f.secure)
}

// load runs the command and prints the report, be it a partial one.
func (a *app) load(ctx context.Context, f runFlags, changed func(flag string) bool) error {
	if err := f.check(changed); err != nil {
		return err
	}
	if f.start {
		stop, err := f.startServer(ctx)
		if err != nil {
			return err
		}
		defer stop()
	} else {
		addr, secure, err := a.server(&f.secure)
		if err != nil {
			return err
		}
		f.o.Connect, f.o.Token = addr, secure.Token
	}
	report, err := a.watchLoad(ctx, f.o)
	if len(report.Steps) == 0 && err != nil { // nothing was measured
		return dialError(f.o.Connect, err)
	}
	return a.finish(report, f.json, err, answers{report.Wrong, report.Refused, report.Requests})
}

// check refuses flags that make no sense together.
func (f *runFlags) check(changed func(flag string) bool) error {
	switch {
	case f.start && changed("connect"):
		return cli.Usagef("--start and --connect name two servers; give one")
	case f.start && f.secure.Given() != "":
		return cli.Usagef("--%s is for --connect; a server of --start needs none", f.secure.Given())
	case !f.start && changed("hitline"):
		return cli.Usagef("--hitline only has a meaning with --start")
	case changed("requests") && changed("duration"):
		return cli.Usagef("--requests and --duration both say when to end; give one")
	}
	if changed("requests") {
		f.o.Duration = 0
	}
	return f.o.Validate()
}

// startServer starts a server on half of the cores. The caller stops it.
func (f *runFlags) startServer(ctx context.Context) (stop func(), err error) {
	allowed, err := process.Cores()
	if err != nil {
		return nil, err
	}
	f.o.Placement = process.Halves(allowed, process.SystemCPUs())
	path, err := findHitline(f.hitline)
	if err != nil {
		return nil, err
	}
	cmd := process.Hitline(path, 16, 2*f.o.Entries, "--backend", "memory")
	cmd.Env = append(cmd.Env, fmt.Sprintf("HITLINE_LIMITS_MAX_CONNECTIONS=%d", max(4096, f.o.Connections+64))) // some control it
	server, err := process.Start(ctx, cmd, process.Options{Cores: f.o.Placement.ServerCores(), Timeout: f.o.Timeout})
	if err != nil {
		return nil, err
	}
	f.o.Connect = server.Addr()
	return server.Stop, nil
}

// watchLoad runs with a line that says how it goes, and describes the first problems.
func (a *app) watchLoad(ctx context.Context, o load.Options) (load.Report, error) {
	return watch(a, func(p *progress) (load.Report, error) {
		o.OnStep = p.step
		o.OnProblem = func(problem *load.Problem) {
			kind := "wrong"
			if problem.Refused {
				kind = "refused"
			}
			p.problem(kind, problem.Error())
		}
		return load.Run(ctx, o)
	})
}
