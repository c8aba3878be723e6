package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/holders"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// addHolders defines the flags that count only with --holders, and --holders itself.
func addHolders(flags *pflag.FlagSet, o *holders.Options) {
	cli.FlagGroup(flags, "Beside llm-d", func(group *pflag.FlagSet) {
		group.IntVar(&o.Holders, "holders", 0, "`number` of engines for which package fleet is compared with llm-d's index")
		group.IntVar(&o.Queries, "queries", 16, "different queries of each kind that are asked in turn")
		group.StringVar(&o.LLMD, "llmd", "", "`path` of hitbench-llmd, or "+noLLMD+" to measure fleet alone")
	})
}

// noLLMD is the --llmd that leaves it out.
const noLLMD = "none"

// compareHolders compares fleet with llm-d's index and prints the report.
func (a *app) compareHolders(ctx context.Context, f compareFlags, changed func(flag string) bool) error {
	if err := refuse(changed, "--%s does not go with --holders", "rotate", "hit-share", "miss-at", "only", "pipeline", "hitline", "python",
		"redis-server", "valkey-server", "server-cores"); err != nil {
		return err
	}
	o := f.holders
	o.Hashes, o.Blocks, o.Rounds, o.TimePerSide, o.Seed = f.o.Hashes, f.o.Entries, f.o.Rounds, f.o.TimePerRival, f.o.Seed
	o.BlockSize, o.Timeout = f.o.BlockSize, f.o.Timeout
	var err error
	if o.Cores, _, err = f.cores.parse(); err != nil {
		return err
	}
	if !changed("hashes") {
		o.Hashes = []int{512, 8192}
	}
	if !changed("entries") {
		o.Blocks = 1_000_000 // llm-d's index takes gigabytes of more
	}
	if !changed("timeout") {
		o.Timeout = 3 * time.Minute // llm-d reads a million blocks meanwhile
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if o.LLMD, err = findLLMD(o.LLMD); err != nil {
		return err
	}
	report, err := watch(a, func(p *progress) (holders.Report, error) {
		o.OnStep, o.OnNote = p.step, p.note
		return holders.Run(ctx, o)
	})
	if err != nil && len(report.Rows) == 0 {
		return err
	}
	return a.finish(report, f.json, err, answers{wrong: int64(report.Wrong)})
}

// findLLMD returns the path of bench/rivals/llmd, empty if it is to be left out.
func findLLMD(named string) (string, error) {
	if named == noLLMD {
		return "", nil
	}
	return findProgram("llmd", named, "hitbench-llmd", "make rivals builds it, and --llmd "+noLLMD+" leaves it out")
}
