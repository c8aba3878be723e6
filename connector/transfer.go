package connector

import (
	"errors"
	"fmt"
	"math"

	"github.com/hitline/hitline/coordinator"
)

// ErrHashes means that a request has too few hashes for its hit.
var ErrHashes = errors.New("connector: too few hashes")

// ErrBoundary means that no block of a group can end at a token.
var ErrBoundary = errors.New("connector: no block ends there")

// LoadRuns returns the blocks to load for a hit, ordered by store group and chunk, without the
// chunks that lie within the computed tokens. The request has numHashes hashes. There are none
// if the hit does not exceed the computed tokens.
//
// The block that ends at the hit is keyed by the hash of its group's tail boundary, or by the
// hash that ends at the hit if that has no boundaries. The package documentation says when a
// block to load need not be stored.
//
// hit must be the answer to a lookup of this pool: others are not all noticed. It fails with
// ErrHashes if the hit, or a boundary, lies behind the hashes, and with the errors of
// Coordinator.LoadMask.
func LoadRuns(rules *coordinator.Coordinator, hit coordinator.Hit, computed int64, numHashes int) ([]Run, error) {
	if hit.Tokens <= computed {
		return nil, nil
	}
	masks, err := rules.LoadMask(numHashes, hit.Tokens)
	if err != nil {
		return nil, fmt.Errorf("connector: blocks of a hit of %d tokens: %w", hit.Tokens, err)
	}
	var runs []Run
	for g := range rules.NumGroups() {
		block, hashBlock := blockSizes(rules, g)
		tail := tailTokens(hit, g)
		if tail > int64(numHashes)*hashBlock {
			return nil, fmt.Errorf("%w: group %d ends at token %d, there are %d of %d tokens", ErrHashes, g, tail, numHashes, hashBlock)
		}
		end := (hit.Tokens + block - 1) / block
		from := len(runs)
		runs = appendRuns(runs, rules, g, masks[rules.PoolIndex(g)].Next, computed/block, end)
		if n := len(runs); n > from && runs[n-1].End == end {
			runs[n-1].last = int(tail/hashBlock) - 1
		}
	}
	return runs, nil
}

// tailTokens returns the token whose hash keys the last block of a group's hit.
func tailTokens(hit coordinator.Hit, group int) int64 {
	for _, tail := range hit.TailBoundaries {
		if tail.Group == group {
			return tail.Tokens
		}
	}
	return hit.Tokens
}

// StoreRuns returns the blocks to store when the first tokens tokens of a request are computed,
// ordered by store group and chunk: those of Coordinator.StoredChunks that were not yet whole
// when from tokens were. from is what tokens was in the last call, or the hit that was loaded;
// both are rounded down to the alignment. promptTokens is the length of the prompt, the same in
// all calls, or coordinator.NoPrompt. So the calls of a request return each block once.
//
// The request must have a hash for each whole hash block of tokens. StoreRuns fails with the
// errors of StoredChunks.
func StoreRuns(rules *coordinator.Coordinator, from, tokens, promptTokens int64) ([]Run, error) {
	align := rules.Alignment()
	chunks, err := rules.StoredChunks(nil, tokens, from/align*align, promptTokens)
	if err != nil {
		return nil, fmt.Errorf("connector: blocks of %d tokens: %w", tokens, err)
	}
	var runs []Run
	for g := range chunks {
		runs = appendRuns(runs, rules, g, chunks[g].Next, 0, math.MaxInt64)
	}
	return runs, nil
}

// blockSizes returns the tokens of a block of store group g, and of a hash block.
func blockSizes(rules *coordinator.Coordinator, g int) (block, hashBlock int64) {
	size := rules.Group(g).BlockSize
	return int64(size), int64(size / rules.Stride(g))
}

// appendRuns appends the runs of store group g among the chunks [first, end). next returns the
// first run [start, end) at or after a chunk.
func appendRuns(runs []Run, rules *coordinator.Coordinator, g int, next func(int64) (start, end int64, ok bool), first, end int64) []Run {
	for at := first; at < end; {
		from, to, ok := next(at)
		if !ok || from >= end {
			break
		}
		at = min(to, end)
		runs = append(runs, newRun(g, from, at, rules.Stride(g)))
	}
	return runs
}

// BlockAt returns the block of a store group that ends at a boundary of tokens tokens, as a run
// of one chunk. It is keyed by the hash that ends there. From 0.29.0 on an engine hands over
// the states of mamba groups so: as group and tokens. In fine-grained mode a boundary may lie
// inside a chunk, of other groups too: a prompt's last chunk that is not whole can be stored
// up to it.
//
// It fails with ErrBoundary unless tokens is a multiple of the group's block size, or in
// fine-grained mode of the hash block size, and above 0. It panics for a group that the pool
// does not have.
func BlockAt(rules *coordinator.Coordinator, group int, tokens int64) (Run, error) {
	block, hashBlock := blockSizes(rules, group)
	unit := block
	if rules.FineGrained() {
		unit = hashBlock
	}
	if tokens <= 0 || tokens%unit != 0 {
		return Run{}, fmt.Errorf("%w: token %d of group %d, want a multiple of %d", ErrBoundary, tokens, group, unit)
	}
	chunk := (tokens - 1) / block
	run := newRun(group, chunk, chunk+1, rules.Stride(group))
	run.last = int(tokens/hashBlock) - 1
	return run, nil
}
