package diagnosis

import (
	"fmt"
	"iter"
	"maps"

	"github.com/hitline/hitline/coordinator"
)

// compareRanks compares the highest rank of each kind of parallelism in a sample with those that
// lookups ask for. It adds the first problem only: one wrong size shows in several ways.
func (c *comparer) compareRanks(s keySample, f *Findings) {
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
			return
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
