package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/vllm"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// vllmFlags are the flags of hitbench compare that count only with --vllm, and --vllm itself.
type vllmFlags struct {
	release      string
	tps, engines []int
	hybridHashes int
}

func (f *vllmFlags) add(flags *pflag.FlagSet) {
	cli.FlagGroup(flags, "Beside vLLM", func(group *pflag.FlagSet) {
		group.StringVar(&f.release, "vllm", "", "`release` of vLLM whose own lookup is the only rival; its modules are fetched from PyPI, 1 MB")
		group.IntSliceVar(&f.tps, "tp", []int{1, 8}, "tensor-parallel `sizes`")
		group.IntSliceVar(&f.engines, "engines", []int{1, 8}, "`numbers` of engines that ask at a time")
		group.IntVar(&f.hybridHashes, "hybrid-hashes", 65536, "hashes, 4 tokens each, of a prompt of the hybrid model, or 0")
	})
}

// vllmHashes is the default of --hashes with --vllm: prompts of 256 tokens to 2 million.
var vllmHashes = []int{16, 256, 1875, 16384, 131072}

// vllmDuration is the default of --duration with --vllm: the longest lookups take a second.
const vllmDuration = 3 * time.Second

// vllmTimeout is the default of --timeout with --vllm: a million keys take half a minute to store.
const vllmTimeout = 3 * time.Minute

// unusedVLLM refuses flags that do nothing without --vllm.
func unusedVLLM(changed func(flag string) bool) error {
	for _, name := range []string{"tp", "engines", "hybrid-hashes"} {
		if changed(name) {
			return cli.Usagef("--%s needs --vllm", name)
		}
	}
	return nil
}

// compareVLLM compares with a release of vLLM and prints the report.
func (a *app) compareVLLM(ctx context.Context, f compareFlags, changed func(flag string) bool) error {
	hashes, duration, timeout := f.o.Hashes, f.o.TimePerRival, f.o.Timeout
	if !changed("hashes") {
		hashes = vllmHashes
	}
	if !changed("duration") {
		duration = vllmDuration
	}
	if !changed("timeout") {
		timeout = vllmTimeout
	}
	for _, name := range []string{
		"holders", "queries", "llmd", "entries", "hit-share", "miss-at", "only", "gomap", "redis-server", "valkey-server",
		"client-cores", "server-cores", "block-size", "rotate", "ways",
	} {
		if changed(name) {
			return cli.Usagef("--%s does not go with --vllm", name)
		}
	}
	o := vllm.Options{
		Release: f.vllm.release, Shapes: vllm.Shapes(hashes, f.vllm.tps, f.vllm.engines, f.vllm.hybridHashes),
		Rounds: f.o.Rounds, Cell: duration,
		Hitline: f.o.Hitline, Python: f.o.Python, Master: f.o.MooncakeMaster,
		Timeout: timeout, Seed: f.o.Seed,
	}
	if err := o.Validate(); err != nil {
		return err
	}
	var err error
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
