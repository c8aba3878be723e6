package holders

import (
	"fmt"
	"slices"
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
	TimePerSide time.Duration // about, in all rounds of each kind and number of hashes
	Seed        uint64        // of hashes, holders, order and misses; 0 for a random one
	HashTokens  int           // tokens that one hash covers
	Core        int           // that all run on; negative for the first that is allowed

	LLMD    string        // path of bench/rivals/llmd; empty: it is left out
	Timeout time.Duration // longest wait for an answer of llm-d's program
	OnNote  func(text string)
	OnStep  func(phase string, done, total int)
}

const (
	// maxHolders is what fleet takes by default.
	maxHolders = 4096
	// maxHashes is a prompt of 16 million tokens.
	maxHashes = 1 << 20
	// maxBlocks bounds the memory.
	maxBlocks = 200_000_000
)

// Validate returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o Options) Validate() error {
	in := func(n, least, most int) bool { return n >= least && n <= most }
	wrong := func(n int) bool { return !in(n, 8, maxHashes) }
	text := ""
	switch {
	case !in(o.Holders, 1, maxHolders):
		text = fmt.Sprintf("%d holders; give 1 to %d", o.Holders, maxHolders)
	case len(o.Hashes) == 0:
		text = "no number of hashes"
	case slices.ContainsFunc(o.Hashes, wrong):
		text = fmt.Sprintf("%d hashes; give 8 to %d", o.Hashes[slices.IndexFunc(o.Hashes, wrong)], maxHashes)
	case len(slices.Compact(slices.Sorted(slices.Values(o.Hashes)))) < len(o.Hashes):
		text = fmt.Sprintf("hashes %v: one of them is there twice", o.Hashes)
	case !in(o.Blocks, 1, maxBlocks):
		text = fmt.Sprintf("%d blocks; give 1 to %d", o.Blocks, maxBlocks)
	case !in(o.Queries, 1, 1_000_000):
		text = fmt.Sprintf("%d queries; give 1 to 1000000", o.Queries)
	case !in(o.Rounds, 1, 1000):
		text = fmt.Sprintf("%d rounds; give 1 to 1000", o.Rounds)
	case o.TimePerSide <= 0:
		text = fmt.Sprintf("%v for each side; it must be positive", o.TimePerSide)
	case !in(o.HashTokens, 1, 1024):
		text = fmt.Sprintf("a hash of %d tokens; it may cover 1 to 1024", o.HashTokens)
	case o.Timeout <= 0:
		text = fmt.Sprintf("a timeout of %v; it must be positive", o.Timeout)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", measure.ErrOptions, text)
}
