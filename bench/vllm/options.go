//go:build linux

package vllm

import (
	"cmp"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
)

// Options says what to measure. OnNote and OnStep must be set.
type Options struct {
	Release    string // of vLLM, such as 0.32.0
	Hashes     []int  // of prompts
	TPs        []int  // tensor-parallel sizes
	HeldHashes int    // that the engine itself has of prompts that grow
	StoreKeys  int    // keys in the store, about

	Rounds  int           // for each row
	Cell    time.Duration // of a row, all rounds and sides, about
	Blocked time.Duration // for which a prompt is at the head of a queue, for each side
	Seed    uint64        // of the hashes; 0 takes a random one

	Hitline string // path of the hitline binary
	Python  string // path of a Python that has pyzmq and mooncake

	Timeout time.Duration                       // longest wait for a start or an answer, besides Cell
	OnNote  func(text string)                   // called with each answer that differs
	OnStep  func(phase string, done, total int) // called before the rows of each set of stored prompts
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o Options) Validate() error {
	return cmp.Or(
		measure.CheckOneOf("vLLM", o.Release, coordinator.Releases()...),
		measure.CheckList("hashes", o.Hashes, 1, maxHashes),
		workload.CheckTPs(o.TPs),
		measure.CheckRange("rounds", o.Rounds, 1, 1000),
		measure.CheckPositive("a duration", o.Cell),
		measure.CheckPositive("a timeout", o.Timeout),
	)
}

// cells returns what is measured.
func (o Options) cells() (cells []cell) {
	for _, tp := range o.TPs {
		for _, h := range o.Hashes {
			for _, p := range presences {
				asks := slices.DeleteFunc(slices.Clone(asksOf[p]), func(a Ask) bool { return a == Blocked && h < slices.Max(o.Hashes) })
				cells = append(cells, cell{Shape{tp, h}, p, asks})
			}
		}
	}
	for _, tp := range o.TPs {
		cells = append(cells, cell{Shape{tp, o.HeldHashes}, All, []Ask{Turns}})
	}
	return cells
}
