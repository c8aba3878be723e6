//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/backend/redis"
	"github.com/hitline/hitline/bench/compare"
	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// compareFlags are the flags of hitbench compare; written by cobra.
type compareFlags struct {
	o       compare.Options
	rotate  int64 // MiB
	json    bool
	release string // of vLLM
	tps     []int
	holders int
}

// rawServer is the hidden command that is the rival which looks nothing up.
const rawServer = "raw-server"

// compareCommand returns the command.
func (a *app) compareCommand() *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Measure the same lookups at hitline and at its rivals",
		Long: `Start hitline and its rivals here, ask all for the same lookups in turn, and
check each answer. A ratio is the median of the rounds', above 1 where the rival
takes longer. Leave the machine alone meanwhile. Linux only.

By default the rivals are raw, a server that reads as many bytes and looks
nothing up, hitline over ZeroMQ, sets in Python behind ZeroMQ, and Redis, asked
by prepared bytes on one connection. With --vllm it is the release's own lookup
over a Mooncake master (Python needs pyzmq, mooncake-transfer-engine-non-cuda);
with --holders indexes of routers, which make rivals builds.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the run was
interrupted; 2 wrong usage; 3 a server did not start, or was lost.`,
		Example: "  hitbench compare --vllm 0.33.0 --python venv/bin/python3",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch flags := cmd.Flags(); {
			case flags.Changed("vllm"): // also if it is empty, which is an error
				return a.compareVLLM(cmd.Context(), f, flags)
			case flags.Changed("holders"):
				return a.compareHolders(cmd.Context(), f, flags)
			case flags.Changed("tp"):
				return cli.Usagef("--tp needs --vllm")
			}
			return a.compare(cmd.Context(), f)
		},
	}
	f.addFlags(cmd.Flags())
	cli.Complete(cmd, "only", compare.Rivals()...)
	return cmd
}

func (f *compareFlags) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.IntSliceVar(&f.o.Hashes, "hashes", []int{64, 512, 8192, 131072}, "`hashes` of a lookup, a list")
	durationFlag(flags, &f.o.TimePerRival, 500*time.Millisecond, " each figure, about")
	entriesFlag(flags, &f.o.Entries, 0, "")
	flags.IntVar(&f.o.Rounds, "rounds", 5, "rounds, over which figures are medians")
	flags.IntVarP(&f.o.Pipeline, "pipeline", "P", 0, "also measure a rate with so many under way")
	seedFlag(flags, &f.o.Seed, 1)
	hitShareFlag(flags, &f.o.HitShare, 1)
	flags.Int64Var(&f.rotate, "rotate", 64, "`MiB` of requests, more than caches hold")
	timeoutFlag(flags, &f.o.Timeout, 20*time.Second, "")
	cli.JSONFlag(flags, &f.json)
	flags.StringVar(&f.release, "vllm", "", "`release` whose own lookup is the rival")
	flags.IntSliceVar(&f.tps, "tp", []int{1, 8}, "with --vllm: tensor-parallel `sizes`")
	flags.IntVar(&f.holders, "holders", 0, "`number` of engines, for indexes of routers")
	flags.StringSliceVar(&f.o.Only, "only", nil, "`rivals` to measure, a list (default all here)")
	hitlineFlag(flags, &f.o.Hitline)
	flags.StringVar(&f.o.Python, "python", "", "`path` of a Python with pyzmq (default python3)")
}

// only returns an error if a flag was given that has no meaning with another one.
func only(flags *pflag.FlagSet, with string, allowed ...string) (err error) {
	allowed = append(allowed, with, "hashes", "duration", "rounds", "seed", "timeout", "json")
	flags.Visit(func(f *pflag.Flag) {
		if err == nil && !slices.Contains(allowed, f.Name) {
			err = cli.Usagef("--%s does not go with --%s", f.Name, with)
		}
	})
	return err
}

// setDefault sets a flag's variable to its default of a mode, unless the flag was given.
func setDefault[T any](flags *pflag.FlagSet, name string, p *T, value T) {
	if !flags.Changed(name) {
		*p = value
	}
}

// rawServerCommand returns the command that compare runs as the rival raw.
func (a *app) rawServerCommand() *cobra.Command {
	return &cobra.Command{
		Use: rawServer + " BYTES", Short: "Answer 4 bytes for each BYTES bytes", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			size, err := strconv.Atoi(args[0])
			if err != nil || size < 1 {
				return cli.Usagef("%q is no number above 0", args[0])
			}
			return compare.ServeRaw(a.stderr, size)
		},
	}
}

// compare runs the command and prints the report.
func (a *app) compare(ctx context.Context, f compareFlags) error {
	o := f.o
	o.Rotate = max(-1, min(f.rotate, 1<<40)) << 20 // beyond all bounds stays beyond them, and does not overflow
	if err := o.Validate(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot tell where this program is: %w", err)
	}
	o.RawServer = []string{self, rawServer}
	if o.Hitline, err = findHitline(o.Hitline); err != nil {
		return err
	}
	redis.DiscardDriverLog() // what it logs is in its errors
	return comparison(a, f.json, func(p *progress) (compare.Report, int, int, error) {
		o.OnStep, o.OnNote = p.step, p.note
		report, err := compare.Run(ctx, o)
		return report, len(report.Rows), report.Wrong, err
	})
}

// comparison runs a comparison, which returns its report with the numbers of rows and of wrong answers,
// and prints the report unless it is empty.
func comparison[Report measure.Report](a *app, asJSON bool, run func(*progress) (report Report, rows, wrong int, err error)) error {
	p := newProgress(a.stderr)
	report, rows, wrong, err := run(p)
	p.finish()
	if err != nil && rows == 0 {
		return err
	}
	return a.finish(report, asJSON, err, answers{wrong: int64(wrong)})
}
