package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/holders"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// holdersFlags are the flags of hitbench compare that count only with --holders, and --holders
// itself.
type holdersFlags struct {
	holders, queries int
	llmd             string
}

func (f *holdersFlags) add(flags *pflag.FlagSet) {
	cli.FlagGroup(flags, "Beside llm-d", func(group *pflag.FlagSet) {
		group.IntVar(&f.holders, "holders", 0, "compare package fleet with llm-d's index, for so many engines")
		group.IntVar(&f.queries, "queries", 16, "different queries of each kind that are asked in turn")
		group.StringVar(&f.llmd, "llmd", "", "`path` of hitbench-llmd, or "+noLLMD+" to measure fleet alone")
	})
}

// holdersHashes is the default of --hashes with --holders.
var holdersHashes = []int{512, 8192}

const (
	// holdersEntries is the default of --entries with --holders: llm-d's index takes gigabytes of more.
	holdersEntries = 1_000_000
	// holdersTimeout is the default of --timeout with --holders: llm-d reads a million blocks meanwhile.
	holdersTimeout = 3 * time.Minute
	// noLLMD is the --llmd that leaves it out.
	noLLMD = "none"
)

// unusedHolders refuses flags that do nothing without --holders.
func unusedHolders(changed func(flag string) bool) error {
	for _, name := range []string{"queries", "llmd"} {
		if changed(name) {
			return cli.Usagef("--%s needs --holders", name)
		}
	}
	return nil
}

// compareHolders compares fleet with llm-d's index and prints the report.
func (a *app) compareHolders(ctx context.Context, f compareFlags, changed func(flag string) bool) error {
	for _, name := range []string{
		"rotate", "hit-share", "miss-at", "only", "ways", "hitline", "python", "gomap", "redis-server", "valkey-server",
		"mooncake-master", "server-cores",
	} {
		if changed(name) {
			return cli.Usagef("--%s does not go with --holders", name)
		}
	}
	o := holders.Options{
		Holders: f.holders.holders, Hashes: f.o.Hashes, Blocks: f.o.Entries, Queries: f.holders.queries,
		Rounds: f.o.Rounds, TimePerSide: f.o.TimePerRival, Seed: f.o.Seed,
		BlockSize: f.o.BlockSize, Timeout: f.o.Timeout,
	}
	var err error
	if o.Cores, _, err = f.cores.parse(); err != nil {
		return err
	}
	if !changed("hashes") {
		o.Hashes = holdersHashes
	}
	if !changed("entries") {
		o.Blocks = holdersEntries
	}
	if !changed("timeout") {
		o.Timeout = holdersTimeout
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if o.LLMD, err = findLLMD(f.holders.llmd); err != nil {
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
