package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/holders"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// addHolders defines the flags that count only with --holders, and --holders itself.
func addHolders(flags *pflag.FlagSet, o *holders.Options) {
	cli.FlagGroup(flags, "With other indexes", func(group *pflag.FlagSet) {
		group.IntVar(&o.Holders, "holders", 0, "`number` of engines for which package fleet is compared with other indexes")
		group.IntVar(&o.Queries, "queries", 16, "different queries of each kind that are asked in turn")
	})
}

// compareHolders compares fleet with other indexes and prints the report.
func (a *app) compareHolders(ctx context.Context, f compareFlags, changed func(flag string) bool) error {
	if err := refuse(changed, "--%s does not go with --holders", "rotate", "hit-share", "miss-at", "pipeline", "hitline", "python",
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
	rivals, missing, err := findIndexes(f.o.Only)
	if err != nil {
		return err
	}
	o.Rivals = rivals
	report, err := watch(a, func(p *progress) (holders.Report, error) {
		o.OnStep, o.OnNote = p.step, p.note
		for _, text := range missing {
			p.note(text)
		}
		return holders.Run(ctx, o)
	})
	if err != nil && len(report.Rows) == 0 {
		return err
	}
	return a.finish(report, f.json, err, answers{wrong: int64(report.Wrong)})
}

// indexes are the rivals by the programs of bench/rivals.
var indexes = map[string]string{"llm-d": "hitbench-llmd", "dynamo": "hitbench-dynamo"}

// findIndexes returns the rivals that are named, or all that are here, with what is missing. Alone is
// holders.Fleet.
func findIndexes(only []string) (rivals []holders.Rival, missing []string, err error) {
	names := only
	if len(only) == 0 {
		names = slices.Sorted(maps.Keys(indexes))
	}
	for _, name := range names {
		if name == holders.Fleet {
			continue
		}
		if indexes[name] == "" {
			return nil, nil, cli.Usagef("--only %s: with --holders give %s, %s", name, holders.Fleet, strings.Join(slices.Sorted(maps.Keys(indexes)), ", "))
		}
		path, err := process.FindProgram("", indexes[name], "make rivals builds it")
		switch {
		case err == nil:
			rivals = append(rivals, holders.Rival{Name: name, Path: path})
		case len(only) > 0:
			return nil, nil, cli.Usagef("--only %s: %w", name, err)
		default:
			missing = append(missing, err.Error())
		}
	}
	return rivals, missing, nil
}
