package vllm

import (
	"cmp"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/coordinator"
)

// Options says what to measure. OnNote and OnStep must be set; Master and Before may be empty.
type Options struct {
	Release      string // of vLLM, such as 0.32.0
	Hashes       []int  // of prompts of the model Llama
	TPs          []int  // tensor-parallel sizes
	HybridHashes int    // of a prompt of the model Hybrid; 0: it is left out
	HeldHashes   int    // that the engine itself has of prompts that grow; 0: they are left out
	StoreKeys    []int  // keys in the store, about
	Grouped      bool   // whether a store with groups of Mooncake's is measured, too

	Rounds  int           // for each row
	Cell    time.Duration // of a row, all rounds and sides, about
	Blocked time.Duration // for which a prompt is at the head of a queue, for each side; 0: it is left out
	Seed    uint64        // of the hashes; 0 takes a random one

	Hitline string // path of the hitline binary
	Before  string // path of another one, which is asked the same, too
	Python  string // path of a Python that has pyzmq and mooncake
	Master  string // path of mooncake_master; that of Python's mooncake if empty

	Timeout time.Duration                       // longest wait for a start or an answer, beside Cell
	OnNote  func(text string)                   // called with each answer that differs
	OnStep  func(phase string, done, total int) // called before the rows of each set of stored prompts
}

// maxStoreKeys keeps the store below its 4 GiB, and a run below an hour.
const maxStoreKeys = 10_000_000

// Validate returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o Options) Validate() error {
	err := measure.CheckOneOf("vLLM", o.Release, coordinator.Releases()...)
	cells := o.cells()
	if err == nil && len(cells) == 0 {
		err = measure.BadOptions("nothing to measure: give hashes, tensor-parallel sizes and keys of the store")
	}
	err = cmp.Or(err, measure.CheckRange("rounds", o.Rounds, 1, 1000), measure.CheckPositive("a duration", o.Cell),
		measure.CheckPositive("a timeout", o.Timeout))
	for _, n := range o.StoreKeys {
		err = cmp.Or(err, measure.CheckRange("keys of the store", n, 1, maxStoreKeys))
	}
	for _, c := range cells {
		err = cmp.Or(err, c.Shape.check())
	}
	return err
}

// cells returns what is measured, one store after the other, of which each has more keys than the
// one before. The hybrid model and prompts that grow are measured over the first one without groups.
func (o Options) cells() []cell {
	if len(o.StoreKeys) == 0 {
		return nil
	}
	sizes := slices.Sorted(slices.Values(o.StoreKeys))
	cells := o.llamaCells(Store{Keys: sizes[0]}, o.Blocked > 0)
	if o.HybridHashes != 0 {
		for _, p := range presences {
			s := Shape{Hybrid, slices.Max(append([]int{1}, o.TPs...)), o.HybridHashes}
			cells = append(cells, cell{Store{Keys: sizes[0]}, s, p, []Ask{First}})
		}
	}
	if o.HeldHashes != 0 {
		for _, tp := range o.TPs {
			cells = append(cells, cell{Store{Keys: sizes[0]}, Shape{Llama, tp, o.HeldHashes}, All, []Ask{Turns}})
		}
	}
	if o.Grouped {
		cells = append(cells, o.llamaCells(Store{sizes[0], true}, false)...)
	}
	for _, n := range sizes[1:] {
		cells = append(cells, o.llamaCells(Store{Keys: n}, false)...)
	}
	return cells
}

// llamaCells returns the cells of one store. With blocked, the longest prompts are those at the
// head of a queue, too.
func (o Options) llamaCells(store Store, blocked bool) []cell {
	var cells []cell
	for _, tp := range o.TPs {
		for _, h := range o.Hashes {
			for _, p := range presences {
				asks := []Ask{First}
				if p == All {
					asks = append(asks, Again)
				}
				if p == All && blocked && h == slices.Max(o.Hashes) {
					asks = append(asks, Blocked)
				}
				cells = append(cells, cell{store, Shape{Llama, tp, h}, p, asks})
			}
		}
	}
	return cells
}
