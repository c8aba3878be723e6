package main

import "github.com/hitline/hitline/coordinator"

// coverage is how much of the prompts the blocks of each group cover, on one rank. A
// full-attention group stores every chunk, so no other group covers more, unless some of
// its blocks were evicted. In fine-grained mode it is empty: groups store parts of chunks.
type coverage struct {
	blocks []int // by group
	tokens []int // by group
	enough int   // blocks that a group must have to be compared with one that has fewer
}

// sampleCoverage is what a sample of keys says, nothing if that may be by chance.
func (e expected) sampleCoverage(s sample) coverage {
	c := e.newCoverage(telling)
	if !e.tells(s) || e.rules.FineGrained() {
		return c
	}
	ranks := make([]map[coordinator.Rank]bool, len(c.blocks))
	for _, k := range s.keys {
		if k.set || k.group >= len(ranks) { // of a set one block is shown
			continue
		}
		if ranks[k.group] == nil {
			ranks[k.group] = map[coordinator.Rank]bool{}
		}
		ranks[k.group][k.rank] = true
		c.blocks[k.group]++
	}
	for g := range ranks {
		c.set(e, g, c.blocks[g]/max(1, len(ranks[g])))
	}
	return c
}

// promptCoverage is what the first blocks of a prompt say.
func (e expected) promptCoverage(b promptBlocks) coverage {
	c := e.newCoverage(enoughOfPrompt)
	if e.rules.FineGrained() {
		return c
	}
	for g := range c.blocks {
		most := 0
		for _, h := range b[g] {
			most = max(most, h.count)
		}
		c.set(e, g, most)
	}
	return c
}

// enoughOfPrompt is how many blocks of a prompt a group must have to be compared.
const enoughOfPrompt = 8

func (e expected) newCoverage(enough int) coverage {
	n := e.rules.NumGroups()
	return coverage{make([]int, n), make([]int, n), enough}
}

func (c coverage) set(e expected, g, blocks int) {
	c.blocks[g], c.tokens[g] = blocks, blocks*e.cfg.Pool.Groups[g].BlockSize
}

// outweighs tells whether group i covers clearly more than group j, which is there too.
func (c coverage) outweighs(i, j int) bool {
	return c.blocks[i] >= c.enough && c.blocks[j] > 0 && c.tokens[i] >= 2*c.tokens[j]
}

// outweighed returns a group that is described as full attention and one that is not and
// covers more all the same. Pairs whose order is known are left out.
func (e expected) outweighed(c coverage, known func(i, j int) bool) (full, other int, found bool) {
	groups := e.cfg.Pool.Groups
	for other := range groups {
		if groups[other].Kind.IsFull() || c.blocks[other] < c.enough {
			continue
		}
		for full := range groups {
			if groups[full].Kind.IsFull() && c.outweighs(other, full) && !known(full, other) {
				return full, other, true
			}
		}
	}
	return 0, 0, false
}

// coverageShows tells whether coverage tells the order of groups i and j: one of them is
// full attention, and they cover clearly different amounts. If they are stored alike, the
// numbers of their blocks must differ as clearly: with equal numbers the described block
// sizes alone make the difference.
func (e expected) coverageShows(c coverage, i, j int) bool {
	groups, alike := e.cfg.Pool.Groups, e.storedAlike(i, j)
	more := func(i, j int) bool { return c.outweighs(i, j) && (!alike || c.blocks[i] >= 2*c.blocks[j]) }
	return groups[i].Kind.IsFull() != groups[j].Kind.IsFull() && (more(i, j) || more(j, i))
}

// compareCoverage adds a problem if full attention is outweighed in a sample.
func (e expected) compareCoverage(s sample, f *findings) {
	full, other, found := e.outweighed(e.sampleCoverage(s), func(int, int) bool { return false })
	if !found {
		return
	}
	groups := e.cfg.Pool.Groups
	f.problem("group %d, described as %s, has blocks of at least twice as many tokens as group %d, described as %s, which stores all that others do: compare the order of pool.groups, and their block sizes, with the engine's kv_cache_groups",
		other, groups[other].Kind, full, groups[full].Kind)
}

// notePromptCoverage notes that full attention is outweighed in a prompt, unless the
// blocks show the order of these groups. It is no proof: blocks may have been evicted.
func (e expected) notePromptCoverage(c coverage, known func(i, j int) bool, f *findings) {
	full, other, found := e.outweighed(c, known)
	if !found {
		return
	}
	groups := e.cfg.Pool.Groups
	f.note("group %d, described as %s, has %d of the prompt's blocks and group %d, described as %s, %d: unless those were evicted, give pool.groups the order of the engine's kv_cache_groups",
		other, groups[other].Kind, c.blocks[other], full, groups[full].Kind, c.blocks[full])
}
