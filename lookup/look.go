package lookup

import (
	"context"
	"errors"

	"github.com/hitline/hitline/coordinator"
)

// maxSampled is how many blocks of a group SampleMissing returns.
const maxSampled = 4

// SampleMissing returns some blocks that a lookup over a backend lacked, if engines save them: the
// group of each, and the hashes that key them, joined. found is how many leading raw hashes of the
// prompt were of blocks in the backend. Of a full-attention group these are the first, the last,
// and some between; of a group of windows it is the last. States are left out, as it is not known
// which an engine saves.
func (r *rules) SampleMissing(numTokens int64, hashes coordinator.Hashes, found int) (groups []int, keys []byte) {
	hashBlock := int64(r.pool.HashBlockSize)
	before := int(hashes.Start() / hashBlock)
	end := int(min(numTokens/hashBlock, int64(before+hashes.Len())))
	if found = max(found, before); found >= end {
		return nil, nil
	}
	var stored []coordinator.StoredChunks
	for g := range r.coord.NumGroups() {
		stride := r.coord.Stride(g)
		first, last := found/stride, end/stride-1
		if last < first {
			continue
		}
		add := func(chunk int) {
			groups = append(groups, g)
			keys = append(keys, hashes.At(coordinator.KeyIndex(chunk, stride)-before)...)
		}
		if r.coord.Group(g).Kind.IsFull() {
			n := min(maxSampled, last-first+1)
			for i := range n {
				add(first + i*(last-first)/max(1, n-1))
			}
			continue
		}
		if stored == nil {
			var err error
			if stored, err = r.coord.StoredChunks(nil, int64(end)*hashBlock, 0, coordinator.NoPrompt); err != nil {
				return nil, nil // no engine saves such a prompt
			}
		}
		for chunk := last; chunk >= max(first, last-64); chunk-- {
			if stored[g].Has(int64(chunk)) {
				add(chunk)
				break
			}
		}
	}
	return groups, keys
}

// errStoreFails ends a look that was not made.
var errStoreFails = errors.New("the store fails: only lookups try it")

// Look asks the backend on how many ranks of its group each block is: those of groups, keyed by
// hashes. If the backend can it leases none of them. It is one call, which counts as no lookup's,
// and is not made while the breaker is not closed.
func (p *PoolBackend) Look(ctx context.Context, groups []int, hashes coordinator.Hashes) (onRanks []int, err error) {
	if !p.shared.health.isClosed() {
		return nil, errStoreFails
	}
	lists := make([]groupBlocks, len(groups))
	prefixes := map[int][]string{}
	for i, g := range groups {
		if prefixes[g] == nil {
			prefixes[g] = p.keyPrefixes(g)
		}
		lists[i] = groupBlocks{prefixes[g], coordinator.NewHashes(hashes.At(i), hashes.HashLen())}
	}
	return p.askAside(ctx, lists, true, nil)
}
