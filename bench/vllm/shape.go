//go:build linux

package vllm

import (
	"fmt"
	"math/rand/v2"

	"github.com/hitline/hitline/bench/workload"
)

const (
	blockTokens = workload.EngineBlockTokens
	// maxHashes keeps a request below the 64 MiB that hitline takes by default, at 32 bytes a hash.
	maxHashes = 2_000_000
	maxChains = 32
	minCuts   = 5 // chains that end at random: odd, so that the median is a time of one of them
	numSides  = 3 // that have keys of their own
)

// Shape is how many ranks the model of [workload.EnginePool] has, and how long its prompts are.
type Shape struct {
	TP     int `json:"tp_size"` // tensor-parallel size
	Hashes int `json:"hashes"`  // of a prompt, 32 bytes each; with Turns those that the engine has at the first
}

func (s Shape) String() string { return fmt.Sprintf("TP %d, %d hashes", s.TP, s.Hashes) }

// Presence is how much of a chain is stored.
type Presence string

// Presences of a chain.
const (
	All          Presence = "all"      // every key that the release asks for
	Half         Presence = "half"     // those of the first half of the prompt
	RandomCut    Presence = "random"   // those before a random block, another one for each chain
	FirstMissing Presence = "no first" // all but those of the first block
	Removed      Presence = "removed"  // none: all were, until hitline had found them
)

// presences begin with what waits for as long as hitline has run.
var presences = []Presence{Removed, All, Half, RandomCut, FirstMissing}

// asksOf are the ways in which chains are asked for, a row each: Blocked for the longest prompts alone.
var asksOf = map[Presence][]Ask{
	Removed: {First, Gone}, All: {First, Known, Again, Blocked}, Half: {First, Known}, RandomCut: {First}, FirstMissing: {First},
}

// chain is a chain of hashes, which number names.
type chain struct {
	number, hashes  int
	stored, skipped int // leading hashes that are stored, and how many of these are left out
	removed         bool
}

// told returns how many leading hashes tell the hit, the first absent one included.
func (c chain) told() int {
	if c.skipped > 0 || c.removed {
		return 1
	}
	return min(c.stored+1, c.hashes)
}

// present returns how many of the told hashes are stored.
func (c chain) present() int {
	if c.skipped > 0 || c.removed {
		return 0
	}
	return c.stored
}

// chains returns the chains of a cell without turns.
func (c cell) chains(o Options) []chain {
	s := c.Shape
	chains := make([]chain, max(1, min(maxChains, o.StoreKeys/numSides/(s.Hashes*s.TP))))
	switch c.Stored {
	case RandomCut:
		chains = make([]chain, max(minCuts, len(chains)))
	case Removed:
		chains = make([]chain, numTurns*o.Rounds)
	}
	random := rand.New(rand.NewPCG(o.Seed, uint64(s.Hashes)))
	for i := range chains {
		chains[i] = chain{number: i, hashes: s.Hashes, stored: s.Hashes}
		switch c.Stored {
		case Half:
			chains[i].stored = s.Hashes / 2
		case RandomCut: // one in each part of the prompt, so that their mean is the same in each run
			chains[i].stored = int((float64(i) + random.Float64()) / float64(len(chains)) * float64(s.Hashes))
		case FirstMissing:
			chains[i].skipped = 1
		case Removed:
			chains[i].removed = true
		}
	}
	return chains
}
