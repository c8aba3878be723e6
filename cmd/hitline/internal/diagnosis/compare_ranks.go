package diagnosis

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/hitline/hitline/coordinator"
)

// compareRanks compares the ranks in a sample with those that lookups ask for. It adds
// the first problem only: one wrong size shows in several ways.
func (c *comparer) compareRanks(s keySample, f *Findings) {
	if c.compareRevision(s, f) || c.compareSizes(s, f) {
		return
	}
	c.compareEachRank(s, f)
}

// compareRevision adds a problem if the tensor ranks of the groups in a sample are those
// of another revision, and not those of the pool's.
func (c *comparer) compareRevision(s keySample, f *Findings) (found bool) {
	numTP := make([]int, c.rules.NumGroups()) // by group, 0 if it has no key
	for _, k := range s.keys {
		if k.group < len(numTP) {
			numTP[k.group] = max(numTP[k.group], k.rank.TP+1)
		}
	}
	matches := func(rules *coordinator.Coordinator) bool {
		for g, n := range numTP {
			if n > 0 && n != maxOf(slices.Values(rules.Ranks(g)), tpRank)+1 {
				return false
			}
		}
		return true
	}
	shared := c.pool.StoreTPSize != nil || c.pool.EnableStoreTPLCM // ranks are shards
	if shared || !c.provesAbsence(s) || matches(c.rules) {
		return false
	}
	for _, other := range []coordinator.Revision{coordinator.Revision20260620, coordinator.Revision0251, coordinator.Revision20260817} {
		if rules, err := coordinator.New(c.pool.At(other)); err == nil && other != c.pool.Revision && matches(rules) {
			f.addProblem("%s", c.formatRevision(other))
			return true
		}
	}
	return false
}

// formatRevision says that the ranks in the store are those of another revision.
func (c *comparer) formatRevision(other coordinator.Revision) string {
	if c.pool.VLLM == "" && other != coordinator.Revision0251 {
		return fmt.Sprintf("the tensor ranks that hold each group's blocks are those of pool.revision %s, and it is %s: set it to that of the engine's vLLM", other, c.pool.Revision)
	}
	releases := map[coordinator.Revision]string{
		coordinator.Revision20260620: "0.24.0", coordinator.Revision0251: "0.25.0 to 0.26.0", coordinator.Revision20260817: "0.27.0 or newer",
	}[other]
	return fmt.Sprintf("the tensor ranks that hold each group's blocks are those of vLLM %s, and the pool is of %s: set pool.vllm to the engine's release", releases, c.pool.FittingReleases())
}

// compareSizes compares the highest rank of each kind of parallelism.
func (c *comparer) compareSizes(s keySample, f *Findings) (found bool) {
	stored, wanted := map[coordinator.Rank]bool{}, map[coordinator.Rank]bool{}
	for _, k := range s.keys {
		stored[k.rank] = true
	}
	for _, r := range allRanks(c.rules) {
		wanted[r] = true
	}
	pool := c.pool
	for _, part := range []struct {
		key, fields string
		of          func(coordinator.Rank) int
		size        int
	}{
		{"tp_rank", fmt.Sprintf("pool.tp_size (%d) and pool.num_kv_head (%d)", pool.TPSize, pool.NumKVHead), tpRank, pool.TPSize},
		{"pp_rank", fmt.Sprintf("pool.pp_size (%d)", pool.PPSize), func(r coordinator.Rank) int { return r.PP }, pool.PPSize},
		{"pcp", fmt.Sprintf("pool.pcp_size (%d)", pool.PCPSize), func(r coordinator.Rank) int { return r.PCP }, pool.PCPSize},
		{"dcp", fmt.Sprintf("pool.dcp_size (%d)", pool.DCPSize), func(r coordinator.Rank) int { return r.DCP }, pool.DCPSize},
	} {
		have, want := maxOf(maps.Keys(stored), part.of), maxOf(maps.Keys(wanted), part.of)
		if have >= max(part.size, want+1) || have < want && c.provesAbsence(s) {
			f.addProblem("the store has blocks on %s, and lookups need them on %s: compare %s with the engine's", formatRange(part.key, have), formatRange(part.key, want), part.fields)
			return true
		}
	}
	return false
}

// compareEachRank adds a problem for a rank of a group without blocks, if the group has
// blocks on another rank.
func (c *comparer) compareEachRank(s keySample, f *Findings) {
	if !c.provesAbsence(s) {
		return
	}
	stored, groups := map[groupRank]bool{}, map[int]bool{}
	for _, k := range s.keys {
		stored[k.groupRank], groups[k.group] = true, true
	}
	for g := range c.rules.NumGroups() {
		for _, r := range c.rules.Ranks(g) {
			if groups[g] && !stored[groupRank{g, r}] {
				f.addProblem("group %d has no block on %s, which lookups need there: compare pool.tp_size, pp_size, num_kv_head and the others with the engine's", g, formatRank(r))
				return
			}
		}
	}
}

// allRanks returns the ranks of all groups, each once.
func allRanks(rules *coordinator.Coordinator) (all []coordinator.Rank) {
	seen := map[coordinator.Rank]bool{}
	for g := range rules.NumGroups() {
		for _, r := range rules.Ranks(g) {
			if !seen[r] {
				seen[r], all = true, append(all, r)
			}
		}
	}
	return all
}

func tpRank(r coordinator.Rank) int { return r.TP }

// maxOf returns the highest value of one part of the ranks, 0 without ranks.
func maxOf(ranks iter.Seq[coordinator.Rank], part func(coordinator.Rank) int) int {
	highest := 0
	for r := range ranks {
		highest = max(highest, part(r))
	}
	return highest
}

// formatRange writes the ranks from 0 to last.
func formatRange(key string, last int) string {
	if last == 0 {
		return key + " 0"
	}
	return fmt.Sprintf("%s 0 to %d", key, last)
}
