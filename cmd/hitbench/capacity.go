package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/capacity"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/simd"
)

// capacityFlags are the flags of hitbench capacity; written by cobra.
type capacityFlags struct {
	trace   string
	entries []int
	json    bool
}

// capacityCommand returns the command.
func (a *app) capacityCommand() *cobra.Command {
	var f capacityFlags
	cmd := &cobra.Command{
		Use:   "capacity --trace FILE",
		Short: "Count what a trace hits in bounded indexes",
		Long: `Count the blocks of a trace in the Mooncake format that hit when an index may
hold only so many: the index of hitline, exact least recently used (LRU), LRU
that uses a chain tail first, and the clairvoyant optimum, which nobody can
exceed. An entry is a block of 512 tokens. All of it runs in this process; no
server is needed.

Exit codes: 0 done; 1 the index exceeded what is possible, or interrupted;
2 wrong usage or a bad trace.`,
		Example: "  hitbench capacity --trace trace.jsonl\n  hitbench capacity --trace trace.jsonl --max-entries 1000,10000 --json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.capacity(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	traceFlag(flags, &f.trace)
	flags.IntSliceVar(&f.entries, "max-entries", []int{1000, 10_000, 30_000, 50_000, 100_000}, "`entries` that an index may hold, a number or a list")
	replaceList(flags, "max-entries")
	jsonFlag(flags, &f.json)
	_ = cmd.MarkFlagRequired("trace") // fails for an unknown flag only
	return cmd
}

// capacity runs the command and prints its report.
func (a *app) capacity(ctx context.Context, f capacityFlags) error {
	if err := simd.ForceFromEnv(); err != nil {
		return cli.Usagef("%w", err)
	}
	in, err := a.openInput(ctx, f.trace, 2) // at least: it is read once for each number of entries
	if err != nil {
		return err
	}
	report, err := watch(a, func(p *progress) (capacity.Report, error) {
		return capacity.Run(ctx, capacity.Options{Trace: in.trace, Capacities: f.entries, OnStep: p.step})
	})
	if err != nil {
		return err
	}
	return a.finish(report, f.json, nil, answers{})
}
