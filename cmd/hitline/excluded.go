package main

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
)

// mayStore tells whether a group that pool.groups[g] describes stores the block of hash
// i of a prompt, whatever the prompt's length and the engine's retention interval.
func (e expected) mayStore(g, i int) bool {
	stride := e.rules.KeyStride(g)
	if (i+1)%stride != 0 {
		return false
	}
	// An engine's retention interval is a multiple of the scheduler block. Then the
	// lookup mask lacks nothing that is stored, except chunk 0 of an EAGLE group,
	// which a short prompt keeps for its replay.
	chunk := int64(i / stride)
	return e.rules.KeyMask(g).At(chunk) || chunk == 0 && e.rules.IsEagle(g) || e.oddInterval()
}

// oddInterval tells whether the configured retention interval is none that an engine
// takes. Then nothing is known of the store masks.
func (e expected) oddInterval() bool {
	interval := e.cfg.Pool.RetentionInterval
	return interval != nil && *interval%e.cfg.Pool.SchedulerBlockSize != 0
}

// excludesAny tells whether stored blocks can contradict pool.groups at all.
func (e expected) excludesAny() bool {
	for g := range e.rules.NumGroups() {
		if !slices.Equal(e.rules.Ranks(g), e.rules.Ranks(0)) {
			return true
		}
		for i := range promptHashes {
			if !e.mayStore(g, i) {
				return true
			}
		}
	}
	return false
}

// excluded returns the first block of group g, by its hash and rank, that a group as
// pool.groups[described] describes it would not have stored.
func (e expected) excluded(b promptBlocks, g, described int) (hash int, rank coordinator.Rank, found bool) {
	for _, h := range b[g] {
		elsewhere := !slices.Contains(e.rules.Ranks(described), h.rank)
		for i, have := range h.have {
			if have && (elsewhere || !e.mayStore(described, i)) {
				return i, h.rank, true
			}
		}
	}
	return 0, coordinator.Rank{}, false
}

// compareStored adds a problem if a group has a block that its description excludes.
func (e expected) compareStored(b promptBlocks, f *findings) {
	for g := range b {
		if hash, rank, found := e.excluded(b, g, g); found {
			f.problem("%s", e.excludedText(g, hash, rank))
			return
		}
	}
}

// excludedText says why a block of group g is not one that it stores, and what to compare.
func (e expected) excludedText(g, hash int, rank coordinator.Rank) string {
	pool := e.cfg.Pool
	group, end := pool.Groups[g], (hash+1)*pool.HashBlockSize
	if !slices.Contains(e.rules.Ranks(g), rank) {
		return fmt.Sprintf("group %d has a block on %s, where lookups do not ask for it: compare with the engine's: tp_size, num_kv_head and the order of pool.groups", g, rankText(rank))
	}
	stores, compare := fmt.Sprintf("one for every %d tokens", group.BlockSize), fmt.Sprintf("block_size of pool.groups[%d]", g)
	if (hash+1)%e.rules.KeyStride(g) == 0 {
		stores = e.maskText(g)
		compare = fmt.Sprintf("block_size and sliding_window of pool.groups[%d], scheduler_block_size (%d), retention_interval", g, pool.SchedulerBlockSize)
	}
	if len(pool.Groups) > 1 {
		compare += ", and the order of pool.groups"
	}
	return fmt.Sprintf("group %d has a block that ends at token %d of a prompt, and as described (%s) it stores %s, not that one: compare with the engine's: %s",
		g, end, groupText(group), stores, compare)
}

// groupText is a group's description.
func groupText(g coordinator.Group) string {
	text := fmt.Sprintf("%s, block_size %d", g.Kind, g.BlockSize)
	if g.SlidingWindow > 0 {
		text += fmt.Sprintf(", sliding_window %d", g.SlidingWindow)
	}
	return text
}

// maskText says which blocks a store mask keeps.
func (e expected) maskText(g int) string {
	mask := e.rules.KeyMask(g)
	start, end, _ := mask.Next(0)
	next, _, _ := mask.Next(end)
	if end == start {
		return "none"
	}
	return fmt.Sprintf("%d of every %d blocks", end-start, next-start)
}
