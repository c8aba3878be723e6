package diagnosis

import "slices"

// The order of two groups is undetermined if nothing that was seen excludes either order.
// Groups with equal specs are left out: exchanging them changes no lookup.

// storedAlike reports whether groups i and j may store the same blocks of a prompt, within
// its first maxPromptHashes hashes, on the same ranks.
func (c *comparer) storedAlike(i, j int) bool {
	for hash := range maxPromptHashes {
		if c.mayStore(i, hash) != c.mayStore(j, hash) {
			return false
		}
	}
	return slices.Equal(c.rules.Ranks(i), c.rules.Ranks(j))
}

// undeterminedGroups returns the groups whose order is undetermined. alike has the classes
// of groups that are stored alike. unseen has groups whose order other blocks of the store
// may determine.
func (c *comparer) undeterminedGroups(determined func(i, j int) bool) (alike [][]int, unseen []int) {
	n := min(c.rules.NumGroups(), maxOrderedGroups)
	classes := make([][]int, n) // by their first group
	for j := range n {
		for i := range j {
			switch {
			case c.rules.AttentionGroup(i) == c.rules.AttentionGroup(j) || determined(i, j):
			case c.storedAlike(i, j):
				first := 0
				for !c.storedAlike(first, i) {
					first++
				}
				classes[first] = append(classes[first], i, j)
			default:
				unseen = append(unseen, i, j)
			}
		}
	}
	for _, class := range classes {
		if len(class) > 0 {
			alike = append(alike, sortedSet(class))
		}
	}
	return alike, sortedSet(unseen)
}

// sortedSet sorts numbers and removes duplicates, in place.
func sortedSet(numbers []int) []int {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// howToCompare says where an operator finds the order of the engine's groups.
const howToCompare = "compare pool.groups with the engine's kv_cache_config.kv_cache_groups: vLLM's log has no specs, a general plugin or a debugger prints them"

// noteUndeterminedOrder adds notes on the groups whose order neither the pool's keys nor a
// prompt's blocks determine.
func (c *comparer) noteUndeterminedOrder(poolKeys keySample, b promptBlocks, f *Findings) {
	ranks, blocks := c.rankEvidence(poolKeys), c.promptEvidence(b)
	ofKeys, ofPrompt := c.sampleCoverage(poolKeys), c.promptCoverage(b)
	c.notePromptCoverage(ofPrompt, blocks.determines, f)
	alike, unseen := c.undeterminedGroups(func(i, j int) bool {
		return ranks.determines(i, j) || blocks.determines(i, j) || c.coverageDetermines(ofKeys, i, j) || c.coverageDetermines(ofPrompt, i, j)
	})
	for _, groups := range alike {
		f.addNote("groups %s are stored alike, so their order cannot be checked here: %s", joinNumbers(groups), howToCompare)
	}
	if len(unseen) > 0 {
		f.addNote("nothing seen here shows the order of groups %s: give a prompt that an engine has stored, by --tokens and --hashes-file, or %s", joinNumbers(unseen), howToCompare)
	}
}

// confirmsOrder reports whether the blocks of a prompt are enough: every group has some,
// and they determine the order of all groups that are not stored alike.
func (c *comparer) confirmsOrder(b promptBlocks) bool {
	ev := c.promptEvidence(b)
	for g := range b {
		if !ev.hasBlocks(g) {
			return false
		}
	}
	_, unseen := c.undeterminedGroups(ev.determines)
	return len(unseen) == 0
}
