package vllm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/hitline/hitline/bench/measure"
)

// Models of a shape: their KV cache groups count, no model is run.
const (
	// Llama has full attention with eight KV heads, so that each tensor-parallel rank has keys of
	// its own. There is one key for each block of 16 tokens and rank.
	Llama = "llama"
	// Hybrid has the groups of DeepSeek V4, which vLLM pull request 46906 reports on. MLA has
	// blocks of 256 tokens; four sliding windows have blocks of 64, 64, 4 and 8 tokens. A hash
	// covers 4 tokens. All tensor-parallel ranks share its keys.
	Hybrid = "hybrid"
)

const (
	// maxHashes keeps a request below the 64 MiB that hitline takes by default, at 32 bytes a hash.
	maxHashes = 2_000_000
	// maxSharedHashes bounds the prompts of several engines at a time. Longer ones measure only
	// how the engines share a machine's cores.
	maxSharedHashes = 2048
	// minKeys is about how many keys are stored for a shape and presence, or those of one chain
	// if they are more. So many keys do not stay in the CPU's caches from one request to the next.
	minKeys = 30_000
)

// Shape is what one measurement varies: a model, and how many engines ask for how long prompts.
type Shape struct {
	Model   string `json:"model"`   // Llama or Hybrid
	TP      int    `json:"tp_size"` // tensor-parallel size
	Hashes  int    `json:"hashes"`  // of a prompt, 32 bytes each
	Engines int    `json:"engines"` // that ask at the same time
}

// shapes returns the shapes of all combinations, but several engines ask for short prompts only,
// at the first of TPs. The hybrid model has one shape, with the largest of TPs.
func (o Options) shapes() []Shape {
	var shapes []Shape
	for _, n := range o.Engines {
		for _, tp := range o.TPs {
			for _, h := range o.Hashes {
				if n == 1 || tp == o.TPs[0] && h <= maxSharedHashes {
					shapes = append(shapes, Shape{Llama, tp, h, n})
				}
			}
		}
	}
	if o.HybridHashes != 0 {
		shapes = append(shapes, Shape{Hybrid, slices.Max(append([]int{1}, o.TPs...)), o.HybridHashes, 1})
	}
	return shapes
}

// check returns an error that wraps [measure.ErrOptions] unless the shape can be measured.
func (s Shape) check() error {
	least := 1
	if s.Model == Hybrid {
		least = 2 * s.firstBlock()
	}
	return cmp.Or(measure.CheckRange("hashes of the model "+s.Model, s.Hashes, least, maxHashes),
		measure.CheckOneOf("tensor-parallel size", strconv.Itoa(s.TP), "1", "2", "4", "8"),
		measure.CheckRange("engines", s.Engines, 1, 64))
}

func (s Shape) String() string {
	text := fmt.Sprintf("%s, TP %d, %d hashes", s.Model, s.TP, s.Hashes)
	if s.Engines > 1 {
		text += fmt.Sprintf(", %d engines", s.Engines)
	}
	return text
}

// group is a KV cache group, in the form of hitline's configuration.
type group struct {
	Kind          string `json:"kind"`
	BlockSize     int    `json:"block_size"`
	SlidingWindow int    `json:"sliding_window,omitempty"`
}

// pool is what hitline's configuration and the Python side have of a model.
type pool struct {
	ModelName          string  `json:"model_name"`
	HashBlockSize      int     `json:"hash_block_size"`
	SchedulerBlockSize int     `json:"scheduler_block_size"`
	TPSize             int     `json:"tp_size"`
	NumKVHead          int     `json:"num_kv_head"`
	Groups             []group `json:"groups"`
}

func (s Shape) pool() pool {
	if s.Model == Llama {
		return pool{"Llama-3.1-8B-Instruct", 16, 16, s.TP, 8, []group{{"full_attention", 16, 0}}}
	}
	const window = "sliding_window_mla"
	return pool{"DeepSeek-V4-Pro", 4, 256, s.TP, 1, []group{
		{"mla_attention", 256, 0}, {window, 64, 128}, {window, 64, 128}, {window, 4, 8}, {window, 8, 128},
	}}
}

// tokens returns the length of a prompt. It ends inside a block, as most prompts do.
func (s Shape) tokens() int {
	p := s.pool()
	return s.Hashes*p.HashBlockSize + p.HashBlockSize/2
}

// firstBlock returns how many hashes the first block of full attention covers.
func (s Shape) firstBlock() int {
	p := s.pool()
	return p.Groups[0].BlockSize / p.HashBlockSize
}

// numChains returns how many chains are asked for in turn.
func (s Shape) numChains() int { return max(1, min(16, minKeys/(s.Hashes*s.TP))) }

// Presence is how much of a chain is stored.
type Presence string

// Presences of a chain.
const (
	All          Presence = "all"      // every key that the release asks for
	Half         Presence = "half"     // those of the first half of the prompt
	FirstMissing Presence = "no first" // all but those of the first block
)

var presences = []Presence{All, Half, FirstMissing}

// stored returns how many leading hashes of a chain are stored, and how many of these are left out.
func (s Shape) stored(p Presence) (stored, skipped int) {
	switch p {
	case Half:
		return s.Hashes / 2, 0
	case FirstMissing:
		return s.Hashes, s.firstBlock()
	}
	return s.Hashes, 0
}
