package lookup

import (
	"slices"

	"github.com/hitline/hitline/coordinator"
)

// groupSet is a set of groups whose keys are looked up at the same positions. The key of
// position i is raw hash i*stride + stride - 1.
type groupSet struct {
	stride int
	mask   coordinator.Mask // the positions that are looked up
	groups []int
	// full has bit g set for the groups of the full-attention family: the hit
	// ends at their first missing chunk.
	full uint64
	// chunkPositions is how many positions a chunk has. It is 1 but in fine-grained mode:
	// there every raw hash is a position, and a chunk is missing if its last one is.
	chunkPositions int
}

// newGroupSets returns the group sets of a pool.
func newGroupSets(c *coordinator.Coordinator) []groupSet {
	var sets []groupSet
	for g := range c.NumGroups() {
		set := groupSet{stride: c.KeyStride(g), mask: c.KeyMask(g), chunkPositions: c.Stride(g) / c.KeyStride(g)}
		at := slices.IndexFunc(sets, func(have groupSet) bool {
			return have.stride == set.stride && have.mask == set.mask && have.chunkPositions == set.chunkPositions
		})
		if at < 0 {
			at = len(sets)
			sets = append(sets, set)
		}
		sets[at].groups = append(sets[at].groups, g)
		if c.Group(g).Kind.IsFull() {
			sets[at].full |= 1 << g
		}
	}
	return sets
}
