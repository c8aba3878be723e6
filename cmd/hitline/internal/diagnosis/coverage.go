package diagnosis

import "github.com/hitline/hitline/coordinator"

// coverage is how much of the prompts the blocks of each group cover, on one rank. A
// full-attention group stores every chunk. So no other group covers more, unless blocks
// of the full-attention group were evicted. In fine-grained mode all numbers are 0,
// because groups store parts of chunks there.
type coverage struct {
	blocks    []int // by group
	tokens    []int // by group
	minBlocks int   // below it a group is not compared with one that has fewer blocks
}

// minPromptBlocks is how many blocks of a prompt a group must have to be compared. A
// sample needs minKeysPerGroupRank, because its keys are chosen by chance.
const minPromptBlocks = 8

func (c *comparer) newCoverage(minBlocks int) coverage {
	n := c.rules.NumGroups()
	return coverage{make([]int, n), make([]int, n), minBlocks}
}

func (v coverage) set(g, blocks, blockSize int) {
	v.blocks[g], v.tokens[g] = blocks, blocks*blockSize
}

// sampleCoverage returns the coverage in a sample. It is 0 if the sample is too small.
func (c *comparer) sampleCoverage(s keySample) coverage {
	v := c.newCoverage(minKeysPerGroupRank)
	if !c.provesAbsence(s) || c.rules.FineGrained() {
		return v
	}
	ranks := make([]map[coordinator.Rank]bool, len(v.blocks))
	for _, k := range s.keys {
		if k.isSet || k.group >= len(ranks) { // a sample has one block of a set
			continue
		}
		if ranks[k.group] == nil {
			ranks[k.group] = map[coordinator.Rank]bool{}
		}
		ranks[k.group][k.rank] = true
		v.blocks[k.group]++
	}
	for g := range ranks {
		v.set(g, v.blocks[g]/max(1, len(ranks[g])), c.pool.Groups[g].BlockSize)
	}
	return v
}

// promptCoverage returns the coverage of the first blocks of a prompt.
func (c *comparer) promptCoverage(b promptBlocks) coverage {
	v := c.newCoverage(minPromptBlocks)
	if c.rules.FineGrained() {
		return v
	}
	for g := range v.blocks {
		blocks := 0
		for _, on := range b[g] {
			blocks = max(blocks, on.count)
		}
		v.set(g, blocks, c.pool.Groups[g].BlockSize)
	}
	return v
}

// atLeastTwice reports whether group i covers at least twice as many tokens as group j,
// which has blocks too.
func (v coverage) atLeastTwice(i, j int) bool {
	return v.blocks[i] >= v.minBlocks && v.blocks[j] > 0 && v.tokens[i] >= 2*v.tokens[j]
}

// coverageConflict returns a full-attention group and another group that covers at least
// twice as much. It leaves out pairs whose order is determined.
func (c *comparer) coverageConflict(v coverage, determined func(i, j int) bool) (full, other int, found bool) {
	groups := c.pool.Groups
	for other := range groups {
		if groups[other].Kind.IsFull() || v.blocks[other] < v.minBlocks {
			continue
		}
		for full := range groups {
			if groups[full].Kind.IsFull() && v.atLeastTwice(other, full) && !determined(full, other) {
				return full, other, true
			}
		}
	}
	return 0, 0, false
}

// coverageDetermines reports whether coverage determines the order of groups i and j: one
// is full attention, and one covers at least twice as much as the other. If they are
// stored alike, it must have twice as many blocks too. With equal numbers of blocks only
// the described block sizes differ.
func (c *comparer) coverageDetermines(v coverage, i, j int) bool {
	groups, alike := c.pool.Groups, c.storedAlike(i, j)
	more := func(i, j int) bool { return v.atLeastTwice(i, j) && (!alike || v.blocks[i] >= 2*v.blocks[j]) }
	return groups[i].Kind.IsFull() != groups[j].Kind.IsFull() && (more(i, j) || more(j, i))
}

// compareCoverage adds a problem if another group covers more than full attention in a
// sample.
func (c *comparer) compareCoverage(s keySample, f *Findings) {
	full, other, found := c.coverageConflict(c.sampleCoverage(s), func(int, int) bool { return false })
	if !found {
		return
	}
	groups := c.pool.Groups
	f.addProblem("group %d, described as %s, has blocks of at least twice as many tokens as group %d, described as %s, which stores all that others do: compare the order of pool.groups, and their block sizes, with the engine's kv_cache_groups",
		other, groups[other].Kind, full, groups[full].Kind)
}

// notePromptCoverage adds a note if another group covers more than full attention in a
// prompt. It is no problem: blocks of this one prompt may have been evicted.
func (c *comparer) notePromptCoverage(v coverage, determined func(i, j int) bool, f *Findings) {
	full, other, found := c.coverageConflict(v, determined)
	if !found {
		return
	}
	groups := c.pool.Groups
	f.addNote("group %d, described as %s, has %d of the prompt's blocks and group %d, described as %s, %d: unless those were evicted, give pool.groups the order of the engine's kv_cache_groups",
		other, groups[other].Kind, v.blocks[other], full, groups[full].Kind, v.blocks[full])
}
