package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hitline/hitline/coordinator"
)

// pool.groups must have the order of the engine's groups, because keys name a group by
// its number. A wrong order shows if a group has a block that its description excludes;
// see exclusion.go. An absent block proves nothing: it may have been evicted, or a
// retention interval may have left it out.

// evidence is what the stored blocks of each group show.
type evidence struct {
	hasBlocks func(g int) bool
	// fits reports whether pool.groups[description] excludes no block of group g.
	fits func(g, description int) bool
}

// rankEvidence returns the evidence of the ranks in a sample.
func (c *comparer) rankEvidence(s keySample) evidence {
	ranks := make([]map[coordinator.Rank]bool, c.rules.NumGroups())
	for g := range ranks {
		ranks[g] = map[coordinator.Rank]bool{}
	}
	for _, k := range s.keys {
		if k.group < len(ranks) {
			ranks[k.group][k.rank] = true
		}
	}
	return evidence{
		hasBlocks: func(g int) bool { return len(ranks[g]) > 0 },
		fits: func(g, description int) bool {
			for r := range ranks[g] {
				if !slices.Contains(c.rules.Ranks(description), r) {
					return false
				}
			}
			return true
		},
	}
}

// promptEvidence returns the evidence of the blocks of a prompt.
func (c *comparer) promptEvidence(b promptBlocks) evidence {
	return evidence{
		hasBlocks: b.groupStored,
		fits: func(g, description int) bool {
			_, _, excluded := c.firstExcluded(b, g, description)
			return !excluded
		},
	}
}

// determines reports whether ev excludes one order of groups i and j: that of pool.groups,
// or the same with the two exchanged.
func (ev evidence) determines(i, j int) bool {
	return !ev.fits(i, i) || !ev.fits(j, j) || !ev.fits(i, j) || !ev.fits(j, i)
}

// maxOrderedGroups bounds the groups whose order is compared, which takes time quadratic
// in their number. Engines have fewer than ten.
const maxOrderedGroups = 64

// compareOrder adds a problem if the evidence fits pool.groups in another order only.
func (c *comparer) compareOrder(ev evidence, f *Findings) (found bool) {
	n, inOrder := c.rules.NumGroups(), true
	for g := range n {
		inOrder = inOrder && ev.fits(g, g)
	}
	if inOrder || n > maxOrderedGroups {
		return false
	}
	descriptions := matchDescriptions(n, ev.fits)
	var moved []int
	for g, description := range descriptions {
		if description == g {
			continue
		}
		if !ev.hasBlocks(g) { // every description fits it
			return false
		}
		moved = append(moved, g)
	}
	if len(moved) == 0 {
		return false
	}
	f.addProblem("%s: give pool.groups the order of the engine's kv_cache_groups", c.formatMoved(moved, descriptions))
	return true
}

// formatMoved says which groups have the blocks of another group's description.
func (c *comparer) formatMoved(moved, descriptions []int) string {
	texts := make([]string, len(moved))
	for i, g := range moved {
		is, as := c.formatDifference(descriptions[g], g)
		texts[i] = fmt.Sprintf("group %d has the blocks of a %s group%s and is described as %s%s",
			g, c.pool.Groups[descriptions[g]].Kind, is, c.pool.Groups[g].Kind, as)
	}
	if len(moved) == 2 {
		texts[1] = fmt.Sprintf("group %d the other way round", moved[1])
	}
	return strings.Join(texts, ", ")
}

// formatDifference returns the fields in which two descriptions of one kind differ. It
// returns nothing if the kinds differ.
func (c *comparer) formatDifference(i, j int) (ofI, ofJ string) {
	x, y := c.pool.Groups[i], c.pool.Groups[j]
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
