package diagnosis

import (
	"context"
	"slices"
)

// comparePrompt looks for the blocks of a prompt in the store and compares those of
// full-attention groups with what pool.groups describes. anyStored is false if the store has
// no block of any group.
func (c *comparer) comparePrompt(ctx context.Context, store *Store, p promptPrefix, f *Findings) (anyStored bool, err error) {
	b, err := p.findBlocks(ctx, store, c.rules)
	if err != nil || !b.anyStored() {
		return false, err
	}
	c.compareFullGroups(b, f)
	return true, nil
}

// minFullBlocks is how many blocks a full-attention group must have on one rank before a
// rank without blocks is a problem. The engine may be storing the first ones.
const minFullBlocks = 4

// compareFullGroups compares the ranks and the block size of full-attention groups. They
// store every chunk on all their ranks; other groups do not.
func (c *comparer) compareFullGroups(b promptBlocks, f *Findings) {
	for g, group := range c.pool.Groups {
		if !group.Kind.IsFull() {
			continue
		}
		ranks := b[g]
		if len(ranks) == 0 {
			continue
		}
		fullest := slices.MaxFunc(ranks, func(x, y rankBlocks) int { return x.count - y.count })
		empty := slices.IndexFunc(ranks, func(on rankBlocks) bool { return on.count == 0 })
		if empty >= 0 && fullest.count >= minFullBlocks {
			f.addProblem("group %d has %d of a prompt's blocks on %s and none on %s: compare pool.tp_size, pp_size, num_kv_head and the others with the engine's",
				g, fullest.count, formatRank(fullest.rank), formatRank(ranks[empty].rank))
			return
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
			return
		}
	}
}
