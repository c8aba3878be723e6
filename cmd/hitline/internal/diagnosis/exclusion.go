package diagnosis

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
)

// A description excludes a block if an engine with such a group would not store it: at
// another stride, outside of the store mask, or on another rank.

// mayStore reports whether a group that pool.groups[g] describes may store the block of
// hash i of a prompt. It holds for any length of the prompt and any retention interval of
// the engine.
func (c *comparer) mayStore(g, i int) bool {
	stride := c.rules.KeyStride(g)
	if (i+1)%stride != 0 {
		return false
	}
	// An engine's retention interval is a multiple of the scheduler block. So the lookup
	// mask has everything that is stored. The exception is chunk 0 of an EAGLE group,
	// which a short prompt stores for its replay.
	chunk := int64(i / stride)
	return c.rules.KeyMask(g).At(chunk) || chunk == 0 && c.rules.IsEagle(g) || c.invalidInterval()
}

// invalidInterval reports whether no engine accepts the configured retention interval.
// Then the store masks are unknown.
func (c *comparer) invalidInterval() bool {
	interval := c.pool.RetentionInterval
	return interval != nil && *interval%c.pool.SchedulerBlockSize != 0
}

// excludesAny reports whether any stored block can contradict pool.groups.
func (c *comparer) excludesAny() bool {
	for g := range c.rules.NumGroups() {
		if !slices.Equal(c.rules.Ranks(g), c.rules.Ranks(0)) {
			return true
		}
		for i := range maxPromptHashes {
			if !c.mayStore(g, i) {
				return true
			}
		}
	}
	return false
}

// firstExcluded returns the first stored block of group g, by its hash and rank, that
// pool.groups[description] excludes.
func (c *comparer) firstExcluded(b promptBlocks, g, description int) (hash int, rank coordinator.Rank, found bool) {
	for _, on := range b[g] {
		otherRank := !slices.Contains(c.rules.Ranks(description), on.rank)
		for i, stored := range on.stored {
			if stored && (otherRank || !c.mayStore(description, i)) {
				return i, on.rank, true
			}
		}
	}
	return 0, coordinator.Rank{}, false
}

// compareStoredBlocks adds a problem if a group has a block that its description excludes.
func (c *comparer) compareStoredBlocks(b promptBlocks, f *Findings) {
	for g := range b {
		if hash, rank, found := c.firstExcluded(b, g, g); found {
			f.addProblem("%s", c.formatExcluded(g, hash, rank))
			return
		}
	}
}

// formatExcluded says why pool.groups[g] excludes a block of group g, and what to compare.
func (c *comparer) formatExcluded(g, hash int, rank coordinator.Rank) string {
	group, end := c.pool.Groups[g], (hash+1)*c.pool.HashBlockSize
	if !slices.Contains(c.rules.Ranks(g), rank) {
		return fmt.Sprintf("group %d has a block on %s, where lookups do not ask for it: compare with the engine's: tp_size, num_kv_head and the order of pool.groups", g, formatRank(rank))
	}
	stores, fields := fmt.Sprintf("one for every %d tokens", group.BlockSize), fmt.Sprintf("block_size of pool.groups[%d]", c.rules.PoolIndex(g))
	if (hash+1)%c.rules.KeyStride(g) == 0 {
		stores = c.formatMask(g)
		fields = fmt.Sprintf("block_size and sliding_window of pool.groups[%d], scheduler_block_size (%d), retention_interval", c.rules.PoolIndex(g), c.pool.SchedulerBlockSize)
	}
	if len(c.pool.Groups) > 1 {
		fields += ", and the order of pool.groups"
	}
	return fmt.Sprintf("group %d has a block that ends at token %d of a prompt, and as described (%s) it stores %s, not that one: compare with the engine's: %s",
		g, end, formatGroup(group), stores, fields)
}

// formatGroup writes a group's description.
func formatGroup(g coordinator.Group) string {
	text := fmt.Sprintf("%s, block_size %d", g.Kind, g.BlockSize)
	if g.SlidingWindow > 0 {
		text += fmt.Sprintf(", sliding_window %d", g.SlidingWindow)
	}
	return text
}

// formatMask says which blocks the mask of group g has.
func (c *comparer) formatMask(g int) string {
	mask := c.rules.KeyMask(g)
	start, end, _ := mask.Next(0)
	next, _, _ := mask.Next(end)
	if end == start {
		return "none"
	}
	return fmt.Sprintf("%d of every %d blocks", end-start, next-start)
}
