package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/vllm"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// addVLLM defines the flags that count only with --vllm, and --vllm itself.
func addVLLM(flags *pflag.FlagSet, o *vllm.Options) {
	cli.FlagGroup(flags, "Beside vLLM", func(group *pflag.FlagSet) {
		group.StringVar(&o.Release, "vllm", "", "`release` of vLLM whose own lookup is the only rival; its modules are fetched from PyPI, 1 MB")
		group.IntSliceVar(&o.TPs, "tp", []int{1, 8}, "tensor-parallel `sizes`")
		group.IntSliceVar(&o.StoreKeys, "store-keys", []int{30000, 1000000}, "keys in the store, about: `numbers`; a million takes half a minute to put")
		group.BoolVar(&o.Grouped, "grouped", true, "also a store of the least number of keys whose ranks are groups of Mooncake's")
		group.IntVar(&o.HeldHashes, "held-hashes", 5000, "hashes that the engine itself has of prompts that grow, or 0")
		group.IntVar(&o.HybridHashes, "hybrid-hashes", 65536, "hashes, 4 tokens each, of a prompt of the hybrid model, or 0")
		group.StringVar(&o.Before, "before", "", "`path` of another hitline, which is asked the same, too")
		group.StringVar(&o.Master, "mooncake-master", "", "`path` of mooncake_master (default that of the Python)")
	})
}

// compareVLLM compares with a release of vLLM and prints the report.
func (a *app) compareVLLM(ctx context.Context, f compareFlags, changed func(flag string) bool) error {
	if err := refuse(changed, "--%s does not go with --vllm", "holders", "queries", "entries", "hit-share", "miss-at", "only", "pipeline",
		"redis-server", "valkey-server", "client-cores", "server-cores", "block-size", "rotate"); err != nil {
		return err
	}
	o := f.vllm
	o.Hashes, o.Rounds, o.Cell, o.Seed, o.Timeout = f.o.Hashes, f.o.Rounds, f.o.TimePerRival, f.o.Seed, f.o.Timeout
	o.Hitline, o.Python = f.o.Hitline, f.o.Python
	o.Blocked = 3 * time.Second // a hundred steps of a scheduler
	if !changed("hashes") {
		o.Hashes = []int{16, 1875} // prompts of 256 and 30,000 tokens
	}
	if !changed("duration") {
		o.Cell = 4 * time.Second // at TP 8 all sides together take 0.1 s
	}
	if !changed("timeout") {
		o.Timeout = 3 * time.Minute // a million keys take half a minute to store
	}
	if err := o.Validate(); err != nil {
		return err
	}
	var err error
	if o.Before != "" {
		if o.Before, err = findProgram("before", o.Before, "", ""); err != nil {
			return err
		}
	}
	if o.Hitline, err = findHitline(o.Hitline); err != nil {
		return err
	}
	if o.Python, err = findProgram("python", o.Python, "python3", "install one, or name it with --python"); err != nil {
		return err
	}
	report, err := watch(a, func(p *progress) (vllm.Report, error) {
		o.OnStep, o.OnNote = p.step, p.note
		return vllm.Run(ctx, o)
	})
	if err != nil && len(report.Rows) == 0 {
		return err
	}
	return a.finish(report, f.json, err, answers{wrong: int64(report.Wrong())})
}
