package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/scale"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// scaleFlags are the flags of hitbench scale; written by cobra.
type scaleFlags struct {
	o    scale.Options
	json bool
}

// scaleCommand returns the command.
func (a *app) scaleCommand() *cobra.Command {
	var f scaleFlags
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Measure throughput over connections and event loops",
		Long: `Measure what hitline answers in a second, in a closed loop, from one connection
to thousands, and with servers of one event loop up to all cores. Servers are
started here and stopped; every answer is checked.

Each point is measured once in every round, in an order that --seed draws anew
for the round. Figures are medians of the rounds, with the least and the
largest; percentiles of latency are those of the lookups of all rounds.

The server has half of the cores and the client the other half. For each number
of loops the best throughput is compared with that of the fewest loops; the
slope is what a further loop adds, fitted, and is 1 at best. It takes two cores
for the server, and so three in all.

By default all takes about 40 s, on machines of many cores a little more than
a minute. Linux only. Leave the machine alone while it runs.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the run was
interrupted; 2 wrong usage; 3 a server did not start, or was lost.`,
		Example: "  hitbench scale",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.scale(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntSliceVar(&f.o.Connections, "connections", nil, "numbers of connections (default 1, 2, 4, … 4096, or what the limit of open files allows; with many loops 1, 4, 16, …)")
	flags.IntSliceVar(&f.o.Loops, "loops", nil, "numbers of event loops (default 1, 2, 4, … and all cores of the server)")
	flags.IntVar(&f.o.Rounds, "rounds", 3, "measurements of each point")
	flags.IntVar(&f.o.Hashes, "hashes", 64, "hashes a lookup; all hit")
	flags.IntVar(&f.o.Pipeline, "pipeline", 1, "lookups in flight on each connection")
	flags.IntVar(&f.o.Entries, "entries", 100_000, "hashes in the index; more are stored if the lookups need it")
	flags.DurationVar(&f.o.Duration, "duration", 0, "how long each point is measured in a round; 0: so that all take about 40 s")
	flags.StringVar(&f.o.Hitline, "hitline", "", "`path` of hitline (default beside this program, then on PATH)")
	flags.DurationVar(&f.o.Timeout, "timeout", 10*time.Second, "longest wait for a start, a connection or an answer")
	flags.Uint64Var(&f.o.Seed, "seed", 1, "of the requests and of the order of the points; 0 for a random one, which the report has")
	flags.BoolVar(&f.json, "json", false, "print the report as one line of JSON")
	return cmd
}

// scale runs the command and prints the report, be it a partial one.
func (a *app) scale(ctx context.Context, f scaleFlags) error {
	o := f.o
	if err := o.Validate(); err != nil {
		return err
	}
	self, err := executable()
	if err != nil {
		return err
	}
	if o.Hitline, err = findHitline(o.Hitline, self); err != nil {
		return err
	}
	report, err := watch(a, func(p *progress) (scale.Report, error) {
		o.OnStep, o.OnNote = p.step, p.note
		return scale.Run(ctx, o)
	})
	if len(report.Points) == 0 {
		return err
	}
	return a.finish(report, f.json, err, answers{wrong: int64(report.Wrong), refused: int64(report.Errors)})
}
