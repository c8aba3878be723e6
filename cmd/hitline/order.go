package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hitline/hitline/coordinator"
)

// pool.groups must stand in the order of the engine's groups, because keys name a group
// by its number. The store shows the order where groups store different blocks: at
// another stride, by another store mask, or on other ranks. A stored block that a
// description excludes is proof against it. An absent one is not: it may have been
// evicted, or a retention interval may have left it out.

// evidence is what was seen of the groups in the store.
type evidence struct {
	has  func(g int) bool            // any block of group g
	fits func(g, described int) bool // pool.groups[described] excludes none of them
}

// storedAlike tells whether the same blocks of a prompt, as far as they are looked at, may
// be stored of two groups, on the same ranks.
func (e expected) storedAlike(i, j int) bool {
	for hash := range promptHashes {
		if e.mayStore(i, hash) != e.mayStore(j, hash) {
			return false
		}
	}
	return slices.Equal(e.rules.Ranks(i), e.rules.Ranks(j))
}

// comparedGroups is up to how many groups their order is compared, which takes time with
// the square of their number. Engines have a few.
const comparedGroups = 64

// compareOrder adds a problem if what was seen fits pool.groups in another order only.
func (e expected) compareOrder(seen evidence, f *findings) (found bool) {
	n, own := e.rules.NumGroups(), true
	for g := range n {
		own = own && seen.fits(g, g)
	}
	if own || n > comparedGroups {
		return false
	}
	described := arrange(n, seen.fits)
	var moved []int
	for g, d := range described {
		if d == g {
			continue
		}
		if !seen.has(g) { // it would fit anywhere
			return false
		}
		moved = append(moved, g)
	}
	if len(moved) == 0 {
		return false
	}
	f.problem("%s: give pool.groups the order of the engine's kv_cache_groups", e.movedText(moved, described))
	return true
}

// movedText says which groups have the blocks of another's description.
func (e expected) movedText(moved, described []int) string {
	texts := make([]string, len(moved))
	for i, g := range moved {
		is, as := e.contrast(described[g], g)
		texts[i] = fmt.Sprintf("group %d has the blocks of a %s group%s and is described as %s%s",
			g, e.cfg.Pool.Groups[described[g]].Kind, is, e.cfg.Pool.Groups[g].Kind, as)
	}
	if len(moved) == 2 {
		texts[1] = fmt.Sprintf("group %d the other way round", moved[1])
	}
	return strings.Join(texts, ", ")
}

// contrast returns what tells two descriptions of one kind apart, nothing if the kinds do.
func (e expected) contrast(i, j int) (ofI, ofJ string) {
	x, y := e.cfg.Pool.Groups[i], e.cfg.Pool.Groups[j]
	if x.Kind != y.Kind {
		return "", ""
	}
	for _, field := range []struct {
		name string
		x, y any
	}{
		{"block_size", x.BlockSize, y.BlockSize},
		{"sliding_window", x.SlidingWindow, y.SlidingWindow},
		{"is_eagle_group", x.IsEagleGroup, y.IsEagleGroup},
	} {
		if field.x != field.y {
			ofI, ofJ = fmt.Sprintf("%s, %s %v", ofI, field.name, field.x), fmt.Sprintf("%s, %s %v", ofJ, field.name, field.y)
		}
	}
	return " of " + strings.TrimPrefix(ofI, ", "), " of " + strings.TrimPrefix(ofJ, ", ")
}

// shows tells whether what was seen excludes the order of pool.groups, or that order with
// groups i and j exchanged.
func (seen evidence) shows(i, j int) bool {
	return !seen.fits(i, i) || !seen.fits(j, j) || !seen.fits(i, j) || !seen.fits(j, i)
}

// unshown returns the groups of different specs whose order is not shown: those that are
// stored alike, by class, and those that other blocks of the store may show.
func (e expected) unshown(shows func(i, j int) bool) (alike [][]int, unseen []int) {
	n := min(e.rules.NumGroups(), comparedGroups)
	classes := make([][]int, n) // by their first group
	for j := range n {
		for i := range j {
			switch {
			case e.rules.AttentionGroup(i) == e.rules.AttentionGroup(j) || shows(i, j):
			case e.storedAlike(i, j):
				first := 0
				for !e.storedAlike(first, i) {
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

// sortedSet sorts numbers and leaves out those that are equal.
func sortedSet(numbers []int) []int {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// howToCompare says where an engine's groups are to be seen.
const howToCompare = "compare pool.groups with the engine's kv_cache_config.kv_cache_groups: vLLM's log tells only their number, a general plugin or a debugger prints them"

// noteOrder notes of which groups neither the pool's keys nor a prompt's blocks show the
// order.
func (e expected) noteOrder(ours sample, b promptBlocks, f *findings) {
	ranks, blocks := e.rankEvidence(ours), e.promptEvidence(b)
	ofKeys, ofPrompt := e.sampleCoverage(ours), e.promptCoverage(b)
	e.notePromptCoverage(ofPrompt, blocks.shows, f)
	alike, unseen := e.unshown(func(i, j int) bool {
		return ranks.shows(i, j) || blocks.shows(i, j) || e.coverageShows(ofKeys, i, j) || e.coverageShows(ofPrompt, i, j)
	})
	for _, groups := range alike {
		f.note("groups %s are stored alike, so their order cannot be checked here: %s", listed(groups), howToCompare)
	}
	if len(unseen) > 0 {
		f.note("nothing seen here shows the order of groups %s: give a prompt that an engine has stored, by --tokens and --hashes-file, or %s", listed(unseen), howToCompare)
	}
}

// settles tells whether a prompt's blocks leave nothing that those of another may show:
// every group has some, and they show the order of all groups that are not stored alike.
func (e expected) settles(b promptBlocks) bool {
	seen := e.promptEvidence(b)
	for g := range b {
		if !seen.has(g) {
			return false
		}
	}
	_, unseen := e.unshown(seen.shows)
	return len(unseen) == 0
}

// rankEvidence is what the ranks in a sample of keys say.
func (e expected) rankEvidence(s sample) evidence {
	ranks := make([]map[coordinator.Rank]bool, e.rules.NumGroups())
	for g := range ranks {
		ranks[g] = map[coordinator.Rank]bool{}
	}
	for _, k := range s.keys {
		if k.group < len(ranks) {
			ranks[k.group][k.rank] = true
		}
	}
	return evidence{
		has: func(g int) bool { return len(ranks[g]) > 0 },
		fits: func(g, described int) bool {
			for r := range ranks[g] {
				if !slices.Contains(e.rules.Ranks(described), r) {
					return false
				}
			}
			return true
		},
	}
}

// promptEvidence is what the blocks of a prompt say.
func (e expected) promptEvidence(b promptBlocks) evidence {
	return evidence{
		has: func(g int) bool { return slices.ContainsFunc(b[g], func(h held) bool { return h.count > 0 }) },
		fits: func(g, described int) bool {
			_, _, excluded := e.excluded(b, g, described)
			return !excluded
		},
	}
}
