package vllm

import (
	"cmp"
	"fmt"
	"math/rand/v2"
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
	// maxSideKeys bounds the keys that each side has in a large store, unless one chain has more.
	// They are more than fit into the CPU's caches.
	maxSideKeys = 60_000
	maxChains   = 32
	minCuts     = 5 // chains that end at random: odd, so that the median is a time of one of them
)

// Store is what the master has.
type Store struct {
	Keys    int  `json:"store_keys"` // about, and at least those of the chains
	Grouped bool `json:"grouped"`    // the ranks of a block are one group of Mooncake's
}

func (s Store) String() string {
	text := fmt.Sprintf("store of %s keys", measure.Grouped(int64(s.Keys)))
	if s.Grouped {
		text += " in groups"
	}
	return text
}

// Shape is a model and how long its prompts are.
type Shape struct {
	Model  string `json:"model"`   // Llama or Hybrid
	TP     int    `json:"tp_size"` // tensor-parallel size
	Hashes int    `json:"hashes"`  // of a prompt, 32 bytes each; with Turns those that the engine has at the first
}

// check returns an error that wraps [measure.ErrOptions] unless the shape can be measured.
func (s Shape) check() error {
	least := 1
	if s.Model == Hybrid {
		least = 2 * s.firstBlock()
	}
	return cmp.Or(measure.CheckRange("hashes of the model "+s.Model, s.Hashes, least, maxHashes),
		measure.CheckOneOf("tensor-parallel size", strconv.Itoa(s.TP), "1", "2", "4", "8"))
}

func (s Shape) String() string { return fmt.Sprintf("%s, TP %d, %d hashes", s.Model, s.TP, s.Hashes) }

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

// firstBlock returns how many hashes the first block of full attention covers.
func (s Shape) firstBlock() int {
	p := s.pool()
	return p.Groups[0].BlockSize / p.HashBlockSize
}

// Presence is how much of a chain is stored.
type Presence string

// Presences of a chain.
const (
	All          Presence = "all"      // every key that the release asks for
	Half         Presence = "half"     // those of the first half of the prompt
	RandomCut    Presence = "random"   // those in front of a random block, another one for each chain
	FirstMissing Presence = "no first" // all but those of the first block
)

var presences = []Presence{All, Half, RandomCut, FirstMissing}

// chain is a chain of hashes, which number names.
type chain struct {
	number, hashes  int
	stored, skipped int // leading hashes that are stored, and how many of these are left out
}

// told returns how many leading hashes tell the hit, the first absent one included.
func (c chain) told() int {
	if c.skipped > 0 {
		return 1
	}
	return min(c.stored+1, c.hashes)
}

// present returns how many of the told hashes are stored.
func (c chain) present() int {
	if c.skipped > 0 {
		return 0
	}
	return c.stored
}

// chains returns the chains of a cell without turns.
func (c cell) chains(seed uint64) []chain {
	s := c.Shape
	chains := make([]chain, max(1, min(maxChains, min(c.Store.Keys/3, maxSideKeys)/(s.Hashes*s.TP))))
	if c.Stored == RandomCut {
		chains = make([]chain, max(minCuts, len(chains)))
	}
	random := rand.New(rand.NewPCG(seed, uint64(s.Hashes)))
	for i := range chains {
		chains[i] = chain{number: i, hashes: s.Hashes, stored: s.Hashes}
		switch c.Stored {
		case Half:
			chains[i].stored = s.Hashes / 2
		case RandomCut: // one in each part of the prompt, so that their mean is the same in each run
			chains[i].stored = int((float64(i) + random.Float64()) / float64(len(chains)) * float64(s.Hashes))
		case FirstMissing:
			chains[i].skipped = s.firstBlock()
		}
	}
	return chains
}
