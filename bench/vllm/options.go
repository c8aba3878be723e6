package vllm

import (
	"cmp"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/coordinator"
)

// Options says what to measure. OnNote and OnStep must be set, and Master may be empty.
type Options struct {
	Release      string // of vLLM, such as 0.32.0
	Hashes       []int  // of prompts of the model Llama
	TPs          []int  // tensor-parallel sizes
	Engines      []int  // numbers of engines that ask at the same time
	HybridHashes int    // of a prompt of the model Hybrid; 0: it is left out

	Rounds int           // for each shape and presence
	Cell   time.Duration // of all rounds, for each of the two, for each shape and presence, about
	Seed   uint64        // of the hashes; 0 takes a random one

	Hitline string // path of the hitline binary
	Python  string // path of a Python that has pyzmq and mooncake
	Master  string // path of mooncake_master; that of Python's mooncake if empty

	Timeout time.Duration                       // longest wait for a start or an answer, beside Cell
	OnNote  func(text string)                   // called with each answer that differs
	OnStep  func(phase string, done, total int) // called before each shape
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o Options) Validate() error {
	err := measure.CheckOneOf("vLLM", o.Release, coordinator.Releases()...)
	shapes := o.shapes()
	if err == nil && len(shapes) == 0 {
		err = measure.BadOptions("nothing to measure: no shape has these hashes, tensor-parallel sizes and engines")
	}
	err = cmp.Or(err, measure.CheckRange("rounds", o.Rounds, 1, 1000), measure.CheckPositive("a duration", o.Cell), measure.CheckPositive("a timeout", o.Timeout))
	for _, s := range shapes {
		err = cmp.Or(err, s.check())
	}
	return err
}
