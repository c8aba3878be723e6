//go:build linux

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
	"github.com/hitline/hitline/bench/vllm"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// compareVLLM compares with a release of vLLM and prints the report.
func (a *app) compareVLLM(ctx context.Context, f compareFlags, flags *pflag.FlagSet) error {
	if err := only(flags, "vllm", "tp", "hitline", "python"); err != nil {
		return err
	}
	o := vllm.Options{
		Release: f.release, Hashes: f.o.Hashes, TPs: f.tps, Rounds: f.o.Rounds, Cell: f.o.TimePerRival, Seed: f.o.Seed, Timeout: f.o.Timeout,
		Hitline: f.o.Hitline, Python: f.o.Python, StoreKeys: 30_000, HeldHashes: 5000,
		Blocked: 3 * time.Second, // a hundred steps of a scheduler
	}
	setDefault(flags, "hashes", &o.Hashes, []int{16, 1875}) // prompts of 256 and 30,000 tokens
	setDefault(flags, "duration", &o.Cell, 4*time.Second)   // at TP 8 all sides together take 0.1 s
	setDefault(flags, "timeout", &o.Timeout, 3*time.Minute)
	if err := o.Validate(); err != nil {
		return err
	}
	if err := findEngines(&o.Hitline, &o.Python); err != nil {
		return err
	}
	return comparison(a, f.json, func(p *progress) (vllm.Report, int, int, error) {
		o.OnStep, o.OnNote = p.step, p.note
		report, err := vllm.Run(ctx, o)
		return report, len(report.Rows), report.Wrong(), err
	})
}

// compareHolders compares the router's index with others and prints the report.
func (a *app) compareHolders(ctx context.Context, f compareFlags, flags *pflag.FlagSet) error {
	if err := only(flags, "holders", "entries", "only"); err != nil {
		return err
	}
	o := holders.Options{
		Holders: f.holders, Hashes: f.o.Hashes, Blocks: f.o.Entries, Queries: 16, Rounds: f.o.Rounds, TimePerSide: f.o.TimePerRival,
		Seed: f.o.Seed, Timeout: f.o.Timeout,
	}
	setDefault(flags, "hashes", &o.Hashes, []int{512, 8192})
	setDefault(flags, "entries", &o.Blocks, 1_000_000)      // llm-d's index takes gigabytes of more
	setDefault(flags, "timeout", &o.Timeout, 3*time.Minute) // llm-d reads a million blocks meanwhile
	if err := o.Validate(); err != nil {
		return err
	}
	rivals, missing, err := findIndexes(f.o.Only)
	if err != nil {
		return err
	}
	o.Rivals = rivals
	return comparison(a, f.json, func(p *progress) (holders.Report, int, int, error) {
		o.OnStep, o.OnNote = p.step, p.note
		for _, text := range missing {
			p.note(text)
		}
		report, err := holders.Run(ctx, o)
		return report, len(report.Rows), report.Wrong, err
	})
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
