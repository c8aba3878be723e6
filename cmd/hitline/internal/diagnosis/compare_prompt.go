package diagnosis

import (
	"context"
	"slices"
)

// comparePrompt looks for the blocks of a prompt in the store and compares them with the
// blocks that pool.groups describes. With checkAbsent absent blocks are evidence too;
// otherwise they may have been evicted.
func (c *comparer) comparePrompt(ctx context.Context, store *Store, p promptPrefix, checkAbsent bool, f *Findings) (promptBlocks, error) {
	b, err := p.findBlocks(ctx, store, c.rules)
	if err != nil || !b.anyStored() {
		return b, err
	}
	switch {
	case c.compareOrder(c.promptEvidence(b), f):
	case checkAbsent && c.compareFullGroups(b, f):
	default:
		c.compareStoredBlocks(b, f)
	}
	return b, nil
}

// minFullBlocks is how many blocks a full-attention group must have on one rank before a
// rank without blocks is a problem. The engine may be storing the first ones.
const minFullBlocks = 4

// compareFullGroups compares the ranks and the block size of full-attention groups. They
// store every chunk on all their ranks; other groups do not.
func (c *comparer) compareFullGroups(b promptBlocks, f *Findings) (found bool) {
	for g, group := range c.pool.Groups {
		if !group.Kind.IsFull() {
			continue
		}
		ranks := b.onDescribedRanks(c.rules, g)
		fullest := slices.MaxFunc(ranks, func(x, y rankBlocks) int { return x.count - y.count })
		empty := slices.IndexFunc(ranks, func(on rankBlocks) bool { return on.count == 0 })
		if empty >= 0 && fullest.count >= minFullBlocks {
			f.addProblem("group %d has %d of a prompt's blocks on %s and none on %s: compare pool.tp_size, pp_size, num_kv_head and the others with the engine's",
				g, fullest.count, formatRank(fullest.rank), formatRank(ranks[empty].rank))
			return true
		}
		if c.rules.FineGrained() { // parts of chunks are stored too
			continue
		}
		if stride := fullest.storedStride(); stride != 0 && stride != c.rules.KeyStride(g) {
			size, orOrder := c.pool.HashBlockSize, ""
			if c.rules.NumGroups() > 1 {
				orOrder = ", or give pool.groups the order of the engine's kv_cache_groups"
			}
			f.addProblem("group %d has a block for every %d tokens of a prompt, and lookups ask for one every %d: set block_size of pool.groups[%d] to the engine's%s",
				g, stride*size, c.rules.KeyStride(g)*size, c.rules.PoolIndex(g), orOrder)
			return true
		}
	}
	return false
}
