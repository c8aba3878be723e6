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
		Long: `Measure the round trip of the same lookups at hitline and at what a user would
otherwise take: a Python set of the store's keys behind ZeroMQ, as engines have
it, and one of the bare hashes; Redis, by SMISMEMBER on a set and by pipelined
EXISTS; and, as the least there can be, raw: a server on a socket that reads as
many bytes and looks nothing up. Each is asked by bytes made before, one request
at a time. A ratio above 1 says that the rival takes longer. Missing rivals are
skipped and reported; with --only they are errors. The servers have half of the
cores, the client one of the others. Requests rotate over more than --rotate
MiB, so that none is in a cache; Python and Redis take a GiB or two of memory.

With --vllm RELEASE the only rival is that release's own lookup client and
server. Both are asked from Python, as an engine asks, over one Mooncake master,
lookup by lookup in turn, each for keys of its own. Python needs
    python3 -m pip install pyzmq mooncake-transfer-engine-non-cuda

With --holders N the rivals are the indexes of routers, llm-d's and Dynamo's:
which of N engines has the longest prefix of a prompt? All are asked query by
query in turn on one core, without a network (make rivals builds them).

All servers are started here and stopped, and every answer is checked. Figures
are medians over rounds, with the lowest and the highest. Leave the machine
alone while it runs. Linux only.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the run was
interrupted; 2 wrong usage; 3 a server did not start, or was lost.`,
		Example: "  hitbench compare --hashes 512 --rounds 3 --json\n  hitbench compare --vllm 0.33.0 --python venv/bin/python3\n  hitbench compare --holders 64",
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
	flags.IntSliceVar(&f.o.Hashes, "hashes", []int{64, 512, 8192, 131072}, "`hashes` of a lookup, a list (with --vllm 16,1875, with --holders 512,8192)")
	durationFlag(flags, &f.o.TimePerRival, 500*time.Millisecond, ": each rival at each number of hashes, about (with --vllm all sides of a row, 4s)")
	entriesFlag(flags, &f.o.Entries, 0, "; --rotate needs 2 million (with --holders in all, 1 million)")
	flags.IntVar(&f.o.Rounds, "rounds", 5, "rounds, over which figures are medians")
	flags.IntVarP(&f.o.Pipeline, "pipeline", "P", 0, "requests under way in further rounds that measure requests a second")
	seedFlag(flags, &f.o.Seed, 1)
	hitShareFlag(flags, &f.o.HitShare, 1)
	flags.Int64Var(&f.rotate, "rotate", 64, "`MiB` that the requests of each number of hashes exceed together")
	timeoutFlag(flags, &f.o.Timeout, 20*time.Second, " (with --vllm, --holders 3m)")
	jsonFlag(flags, &f.json)
	cli.FlagGroup(flags, "Rivals", func(group *pflag.FlagSet) {
		group.StringVar(&f.release, "vllm", "", "`release` of vLLM whose own lookup is the only rival; its modules are fetched from PyPI, 1 MB")
		group.IntSliceVar(&f.tps, "tp", []int{1, 8}, "with --vllm: tensor-parallel `sizes`")
		group.IntVar(&f.holders, "holders", 0, "`number` of engines for which indexes of routers are compared")
		group.StringSliceVar(&f.o.Only, "only", nil, "`rivals` to measure beside hitline, a list (default all that are here)")
		hitlineFlag(group, &f.o.Hitline)
		group.StringVar(&f.o.Python, "python", "", "`path` of a Python with pyzmq, with --vllm also with Mooncake (default python3)")
	})
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
