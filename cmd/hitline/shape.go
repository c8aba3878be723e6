package main

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
)

// findings are what a look at a store's blocks has come to.
type findings struct {
	Notes    []string `json:"notes,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

func (f *findings) note(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}

// problem adds a line that says what is wrong, where, and what to do, unless it is there.
func (f *findings) problem(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(f.Problems, line) {
		f.Problems = append(f.Problems, line)
	}
}

// expected is the pool that the configuration describes.
type expected struct {
	cfg   *config.Config
	rules *coordinator.Coordinator
}

// compare says how the keys of a sample differ from those of the pool: a line for
// each mistake in the configuration, however many keys show it.
func (e expected) compare(s sample, f *findings) {
	if len(s.keys) == 0 {
		if s.complete {
			f.note("no key in the store has the shape of a block's: nothing is stored yet, or it is elsewhere, in another database or tenant")
		} else {
			f.note("none of the keys looked at has the shape of a block's")
		}
		return
	}
	names := map[string]int{}
	for _, k := range s.keys {
		names[k.name]++
	}
	ours := s.of(poolName(e.rules))
	if len(ours.keys) == 0 {
		e.compareNames(names, f)
		return
	}
	if len(names) > 1 {
		f.note("%d other %s in this store", len(names)-1, plural(len(names)-1, "pool"))
	}
	e.compareGroups(ours, f)
	e.compareRanks(ours, f)
	e.compareCoverage(ours, f)
	e.compareLayout(ours, f)
	e.compareLengths(ours, f)
}

// compareNames says which part of the name of other pools differs from ours.
func (e expected) compareNames(names map[string]int, f *findings) {
	most := ""
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] > names[most] {
			most = name
		}
	}
	prefix, model := splitName(most)
	wantPrefix, wantModel := splitName(poolName(e.rules))
	switch {
	case prefix == wantPrefix:
		f.problem("the store's blocks are of the model %q, and lookups ask for %q: set pool.model_name to the engine's, unless it has stored nothing yet", model, wantModel)
	case model == wantModel:
		f.problem("the store's blocks have the cache prefix %q, and lookups ask for %q: set pool.cache_prefix to the engine's, unless it has stored nothing yet", prefix, wantPrefix)
	default:
		f.problem("the store's blocks have the cache prefix %q and the model %q, and lookups ask for %q and %q: set pool.cache_prefix and pool.model_name to the engine's, unless it has stored nothing yet",
			prefix, model, wantPrefix, wantModel)
	}
}

// telling is how many keys for each place show that a place without any has none:
// stores give keys in the order of their hashes, which has nothing to do with places.
const telling = 50

// tells whether what is not in the sample is not in the store either.
func (e expected) tells(s sample) bool {
	places := 0
	for g := range e.rules.NumGroups() {
		places += len(e.rules.Ranks(g))
	}
	return s.complete || len(s.keys) >= telling*places
}

// compareGroups compares how many groups there are.
func (e expected) compareGroups(s sample, f *findings) {
	want, held := e.rules.NumGroups(), map[int]bool{}
	most := 0
	for _, k := range s.keys {
		held[k.group] = true
		most = max(most, k.group)
	}
	if most >= want {
		f.problem("the store has blocks of group %d, and pool.groups describes %d %s, from 0: describe there all groups of the engine, in its order", most, want, plural(want, "group"))
		return
	}
	for g := range want {
		if !held[g] && e.tells(s) {
			f.problem("the store has no block of group %d, and pool.groups describes %d groups, from 0: describe there the groups of the engine and no others", g, want)
			return
		}
	}
}

// compareRanks compares the ranks that hold blocks with those that must.
func (e expected) compareRanks(s sample, f *findings) {
	if e.compareRevision(s, f) {
		return
	}
	pool := e.rules.Pool()
	held := map[coordinator.Rank]bool{}
	for _, k := range s.keys {
		held[k.rank] = true
	}
	needed := map[coordinator.Rank]bool{}
	for g := range e.rules.NumGroups() {
		for _, r := range e.rules.Ranks(g) {
			needed[r] = true
		}
	}
	for _, part := range []struct {
		key, fix string
		of       func(coordinator.Rank) int
		size     int
	}{
		{"tp_rank", fmt.Sprintf("pool.tp_size (%d) and pool.num_kv_head (%d)", pool.TPSize, pool.NumKVHead), tpRank, pool.TPSize},
		{"pp_rank", fmt.Sprintf("pool.pp_size (%d)", pool.PPSize), func(r coordinator.Rank) int { return r.PP }, pool.PPSize},
		{"pcp", fmt.Sprintf("pool.pcp_size (%d)", pool.PCPSize), func(r coordinator.Rank) int { return r.PCP }, pool.PCPSize},
		{"dcp", fmt.Sprintf("pool.dcp_size (%d)", pool.DCPSize), func(r coordinator.Rank) int { return r.DCP }, pool.DCPSize},
	} {
		have, need := highest(maps.Keys(held), part.of), highest(maps.Keys(needed), part.of)
		if have >= part.size || have < need && e.tells(s) {
			f.problem("the store has blocks on %s, and lookups need them on %s: compare %s with the engine's", upTo(part.key, have), upTo(part.key, need), part.fix)
			return
		}
	}
	if !e.compareOrder(e.rankEvidence(s), f) {
		e.compareEachRank(s, f)
	}
}

// compareRevision adds a problem if the tensor ranks of the groups in a sample are those of
// another revision, and not those of the pool's.
func (e expected) compareRevision(s sample, f *findings) (found bool) {
	held := make([]int, e.rules.NumGroups()) // ranks by group, 0 if it has no key
	for _, k := range s.keys {
		if k.group < len(held) {
			held[k.group] = max(held[k.group], k.rank.TP+1)
		}
	}
	fits := func(rules *coordinator.Coordinator) bool {
		for g, have := range held {
			if have > 0 && have != highest(slices.Values(rules.Ranks(g)), tpRank)+1 {
				return false
			}
		}
		return true
	}
	if !e.tells(s) || fits(e.rules) {
		return false
	}
	own := e.rules.Pool().Revision
	for _, other := range []coordinator.Revision{coordinator.Revision20260620, coordinator.Revision20260817} {
		pool := e.cfg.Pool
		pool.Revision = other
		if rules, err := coordinator.New(pool); err == nil && other != own && fits(rules) {
			f.problem("the tensor ranks that hold each group's blocks are those of pool.revision %s, and it is %s: set it to that of the engine's vLLM", other, own)
			return true
		}
	}
	return false
}

func tpRank(r coordinator.Rank) int { return r.TP }

func highest(ranks iter.Seq[coordinator.Rank], of func(coordinator.Rank) int) int {
	most := 0
	for r := range ranks {
		most = max(most, of(r))
	}
	return most
}

func upTo(key string, last int) string {
	if last == 0 {
		return key + " 0"
	}
	return fmt.Sprintf("%s 0 to %d", key, last)
}

// compareEachRank names a rank without blocks where others of the group have some.
func (e expected) compareEachRank(s sample, f *findings) {
	if !e.tells(s) {
		return
	}
	type place struct {
		group int
		rank  coordinator.Rank
	}
	held, groups := map[place]bool{}, map[int]bool{}
	for _, k := range s.keys {
		held[place{k.group, k.rank}], groups[k.group] = true, true
	}
	for g := range e.rules.NumGroups() {
		for _, r := range e.rules.Ranks(g) {
			if groups[g] && !held[place{g, r}] {
				f.problem("group %d has no block on %s, which lookups need there: compare pool.tp_size, pp_size, num_kv_head and the others with the engine's", g, rankText(r))
				return
			}
		}
	}
}

func rankText(r coordinator.Rank) string {
	return fmt.Sprintf("tp_rank %d, pp_rank %d, pcp %d, dcp %d", r.TP, r.PP, r.PCP, r.DCP)
}

// compareLayout compares the layout of a Redis.
func (e expected) compareLayout(s sample, f *findings) {
	sets := 0
	for _, k := range s.keys {
		if k.set {
			sets++
		}
	}
	if e.cfg.Backend.Name() != "redis" {
		return
	}
	switch layout := e.cfg.Backend.Redis.Layout; {
	case sets > 0 && layout == "keys":
		f.problem("blocks are stored in sets: set backend.redis.layout to set, or reset the pool")
	case sets < len(s.keys) && layout == "set":
		f.problem("blocks are stored as keys of their own: set backend.redis.layout to keys, or reset the pool")
	}
}

// compareLengths looks at the lengths of the hashes.
func (e expected) compareLengths(s sample, f *findings) {
	switch lengths := s.hashLengths(); len(lengths) {
	case 0:
	case 1:
		f.note("the hashes in the keys have %d hexadecimal digits, %d bytes; a lookup's must have as many", 2*lengths[0], lengths[0])
	default:
		f.problem("the hashes in the keys have %s bytes: engines with different hash functions share this pool, give each a pool.cache_prefix", listed(lengths))
	}
}

// hashLengths returns the lengths of the hashes in bytes, ascending.
func (s sample) hashLengths() []int {
	lengths := map[int]bool{}
	for _, k := range s.keys {
		if k.hash != "" {
			lengths[len(k.hash)/2] = true
		}
	}
	return slices.Sorted(maps.Keys(lengths))
}

// listed writes numbers as a sentence does.
func listed(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	if last := len(texts) - 1; last > 0 {
		return strings.Join(texts[:last], ", ") + " and " + texts[last]
	}
	return strings.Join(texts, "")
}
