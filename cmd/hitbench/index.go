package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/indexbench"
	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/simd"
)

// indexFlags are the flags of hitbench index; written by cobra.
type indexFlags struct {
	entries    int
	hashLen    int
	passes     int
	churn      bool
	churnRate  int
	lookupRate int
	churnPhase time.Duration
	trace      string
	capacities []int64
	seed       uint64
	json       bool
}

// indexCommand returns the command.
func (a *app) indexCommand() *cobra.Command {
	var f indexFlags
	cmd := &cobra.Command{
		Use:   "index",
		Short: "Measure the pool index in this process, beside a Go map",
		Long: `Measure the pool index in this process; no server is needed.

By default, the time of a lookup a hash in an index of many entries, in chains
as stored, in random order, and of a lookup that misses, beside a Go map in the
same run; the memory of an entry; and stores of one block each. With --churn,
percentiles of lookups of 8,192 hashes in a full index, quiet and while another
goroutine stores and evicts. These lookups fall due by a clock, and each is
counted from when it was due; ≥ marks a figure that lookups not begun by the end
of a phase may have lowered. With --trace, a recorded trace in hashes of 16
tokens beside a Go map; with --capacities also the hits of bounded indexes in
blocks of 512 tokens, beside exact LRU (lru), LRU that uses a chain tail first
(tail lru), and the best possible (belady).

Figures are medians of the passes, with the least and the largest; percentiles
are those of all lookups of all rounds. One seed makes the same hashes and
orders.

Exit codes: 0 done; 1 an answer was wrong, or interrupted; 2 wrong usage or a
bad trace.`,
		Example: "  hitbench index --entries 1000000",
		Args:    cli.NoArgs,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&f.entries, "entries", 10_000_000, "hashes in the index")
	flags.IntVar(&f.hashLen, "hash-len", 32, "bytes a hash, 8 to 64; the map is for 8, 16, 20 and 32")
	flags.IntVar(&f.passes, "passes", 5, "passes, or rounds of --churn")
	flags.BoolVar(&f.churn, "churn", false, "lookups while entries are stored and evicted")
	flags.IntVar(&f.churnRate, "churn-rate", 100_000, "entries stored a second, with --churn")
	flags.IntVar(&f.lookupRate, "lookup-rate", 2000, "lookups that fall due a second, with --churn")
	flags.DurationVar(&f.churnPhase, "churn-phase", 2*time.Second, "length of a phase; each round has two, with --churn")
	flags.StringVar(&f.trace, "trace", "", "trace file, plain or gzip; - for standard input")
	flags.Int64SliceVar(&f.capacities, "capacities", nil, "bounds to count hits under, in blocks, with --trace")
	flags.Uint64Var(&f.seed, "seed", 1, "decides the hashes and the orders; not for --trace")
	flags.BoolVar(&f.json, "json", false, "print the report as one line of JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.index(cmd.Context(), f, flags)
	}
	return cmd
}

// check refuses flags that have no meaning together.
func (f indexFlags) check(flags *pflag.FlagSet) error {
	if f.churn && flags.Changed("trace") {
		return cli.Usagef("--churn and --trace are measurements of their own; give one")
	}
	if flags.Changed("trace") && f.trace == "" {
		return cli.Usagef("--trace names no file")
	}
	for _, need := range []struct {
		name, with string
		met        bool
	}{
		{"churn-rate", "--churn", f.churn},
		{"churn-phase", "--churn", f.churn},
		{"lookup-rate", "--churn", f.churn},
		{"capacities", "--trace", f.trace != ""},
	} {
		if flags.Changed(need.name) && !need.met {
			return cli.Usagef("--%s only has a meaning with %s", need.name, need.with)
		}
	}
	for _, name := range []string{"entries", "hash-len", "seed"} {
		if flags.Changed(name) && f.trace != "" {
			return cli.Usagef("--%s has no meaning with --trace", name)
		}
	}
	return nil
}

// index runs the command and prints its report.
func (a *app) index(ctx context.Context, f indexFlags, flags *pflag.FlagSet) error {
	if err := f.check(flags); err != nil {
		return err
	}
	if err := simd.ForceFromEnv(); err != nil {
		return cli.Usagef("%w", err)
	}
	report, err := watch(a, func(p *progress) (measure.Report, error) {
		report, err := a.measureIndex(ctx, f, p.step)
		if r, ok := report.(indexbench.SpeedReport); ok && err == nil && r.GomapChainNs == nil {
			p.line(fmt.Sprintf("no Go map is measured beside hashes of %d bytes, only of 8, 16, 20 and 32", r.HashLen))
		}
		return report, err
	})
	if err != nil {
		return err
	}
	return a.finish(report, f.json, nil, answers{})
}

// measureIndex makes the measurement that the flags name.
func (a *app) measureIndex(ctx context.Context, f indexFlags, progress indexbench.Progress) (measure.Report, error) {
	switch {
	case f.trace != "":
		o := indexbench.ReplayOptions{Passes: f.passes, Capacities: f.capacities, Progress: progress}
		in, err := a.openInput(ctx, f.trace, 2) // at least: it is read once a pass and side
		if err != nil {
			return nil, err
		}
		o.Trace = in.trace
		return indexbench.Replay(ctx, o)
	case f.churn:
		return indexbench.Churn(ctx, indexbench.ChurnOptions{
			Entries: f.entries, HashLen: f.hashLen, Rate: f.churnRate, LookupRate: f.lookupRate, Phase: f.churnPhase,
			Rounds: f.passes, Seed: f.seed, Progress: progress,
		})
	}
	return indexbench.Speed(ctx, indexbench.SpeedOptions{
		Entries: f.entries, HashLen: f.hashLen, Passes: f.passes, Seed: f.seed, Progress: progress,
	})
}
