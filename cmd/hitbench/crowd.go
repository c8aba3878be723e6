//go:build linux

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/crowd"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// crowdFlags are the flags of hitbench crowd; written by cobra.
type crowdFlags struct {
	o     crowd.Options // but its trace and ways
	trace string
	tps   []int
	ways  []string
	all   bool
	json  bool
}

// crowdCommand returns the command.
func (a *app) crowdCommand() *cobra.Command {
	var f crowdFlags
	cmd := &cobra.Command{
		Use:   "crowd --trace FILE",
		Short: "Measure what many engines ask of one Mooncake master",
		Long: `Start a Mooncake master whose store evicts, and simulate engines that look up,
load and save, in sessions made of a trace: lookups of vLLM, byte for byte, or
of one hitline. Every way has the same turns. Leave the machine alone meanwhile.
The short form takes 20 minutes: TP 8, 1 and 10 engines and the largest number
at which the master and hitbench each take less than half of a core.

The Python needs mooncake-transfer-engine-non-cuda. Linux only.

Exit codes: 0 done; 1 it was interrupted; 2 wrong usage or a bad trace; 3 a
program did not start, or was lost.`,
		Example: "  hitbench crowd --trace trace.jsonl --python venv/bin/python3",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.crowd(cmd.Context(), f, cmd.Flags())
		},
	}
	f.addFlags(cmd.Flags())
	cli.Complete(cmd, "lookups", crowdWays(crowd.Ways())...)
	_ = cmd.MarkFlagRequired("trace") // fails for an unknown flag only
	return cmd
}

func (f *crowdFlags) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&f.trace, "trace", "", "`file` of a trace in the Mooncake format, plain or gzip")
	flags.BoolVar(&f.all, "all", false, "TP 1 and 8, all lookups, two rounds: about 100 minutes")
	flags.IntSliceVar(&f.tps, "tp", []int{8}, "tensor-parallel `sizes`, a list")
	flags.StringSliceVar(&f.ways, "lookups", crowdWays(crowd.ShortWays()), "ways to look up, a list")
	flags.IntSliceVar(&f.o.Engines, "engines", []int{1, 10, crowd.Largest}, "`numbers`, a list; 0, at its end, for the largest")
	flags.IntVar(&f.o.Rounds, "rounds", 1, "rounds")
	durationFlag(flags, &f.o.Window, time.Minute, " each")
	flags.IntVar(&f.o.CacheTokens, "cache", 100_000, "`tokens` in an engine's own cache")
	flags.IntVar(&f.o.StoreTokens, "store", 200_000, "`tokens` in the store, for each engine")
	seedFlag(flags, &f.o.Seed, 1)
	timeoutFlag(flags, &f.o.Timeout, time.Minute, "")
	cli.JSONFlag(flags, &f.json)
	hitlineFlag(flags, &f.o.Hitline)
	flags.StringVar(&f.o.Python, "python", "", "`path` of a Python with Mooncake (default python3)")
}

// crowdWays returns the names of ways.
func crowdWays(ways []crowd.Way) (names []string) {
	for _, w := range ways {
		names = append(names, string(w))
	}
	return names
}

// options returns what to measure.
func (f crowdFlags) options(flags *pflag.FlagSet) crowd.Options {
	o := f.o
	o.Trace = workload.Trace(f.trace)
	o.Lead = min(15*time.Second, o.Window) // a lease lasts 10 s
	o.Ways = map[int][]crowd.Way{}
	if f.all {
		setDefault(flags, "tp", &f.tps, []int{1, 8})
		setDefault(flags, "rounds", &o.Rounds, 2)
	}
	for _, tp := range f.tps {
		for _, name := range f.ways {
			o.Ways[tp] = append(o.Ways[tp], crowd.Way(name))
		}
		if f.all && tp > 1 && !flags.Changed("lookups") {
			o.Ways[tp] = crowd.Ways()
		}
	}
	return o
}

// crowd runs the command and prints the report, be it a partial one.
func (a *app) crowd(ctx context.Context, f crowdFlags, flags *pflag.FlagSet) error {
	o := f.options(flags)
	if err := o.Validate(); err != nil {
		return err
	}
	if err := findEngines(&o.Hitline, &o.Python); err != nil {
		return err
	}
	return comparison(a, f.json, func(p *progress) (crowd.Report, int, int, error) {
		o.OnStep, o.OnNote = p.step, p.note
		report, err := crowd.Run(ctx, o)
		return report, len(report.Rows), 0, err
	})
}
