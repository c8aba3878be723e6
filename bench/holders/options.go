//go:build linux

package holders

import (
	"cmp"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// Options says what to measure.
type Options struct {
	Holders int
	Hashes  []int // hashes a query; each is measured on its own
	Blocks  int   // least number of different blocks that are stored, of all numbers of hashes
	Queries int   // that are asked in turn, of each kind and number of hashes

	Rounds      int
	TimePerSide time.Duration // about, in all rounds of each kind and number of hashes, commands included
	Seed        uint64        // of hashes, holders, order and misses; 0 for a random one

	Rivals  []Rival
	core    []int         // that all run on
	Timeout time.Duration // longest wait for an answer of a rival
	OnNote  func(text string)
	OnStep  func(phase string, done, total int)
}

const (
	blockSize = 16 // tokens that one hash covers
	// maxHolders is what fleet takes by default.
	maxHolders = 4096
	// maxHashes is a prompt of 16 million tokens.
	maxHashes = 1 << 20
	// maxBlocks bounds the memory.
	maxBlocks = 200_000_000
)

// Validate returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o Options) Validate() error {
	return cmp.Or(
		measure.CheckRange("holders", o.Holders, 1, maxHolders),
		measure.CheckList("hashes", o.Hashes, 8, maxHashes),
		measure.CheckRange("blocks", o.Blocks, 1, maxBlocks),
		measure.CheckRange("queries", o.Queries, 1, 1_000_000),
		measure.CheckRange("rounds", o.Rounds, 1, 1000),
		measure.CheckPositive("a duration", o.TimePerSide),
		measure.CheckPositive("a timeout", o.Timeout),
	)
}
