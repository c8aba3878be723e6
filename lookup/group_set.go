package lookup

import (
	"slices"

	"github.com/hitline/hitline/coordinator"
)

// groupSet is a set of groups whose chunks are asked at the same positions. Position
// i of a group set stands for raw hash i*stride + stride - 1.
type groupSet struct {
	stride int
	mask   coordinator.Mask // which positions are asked
	groups []int
	// full has bit g set for the groups of the full-attention family: the hit
	// ends at their first missing chunk.
	full uint64
	// chunkPositions is how many positions make a chunk: 1, but in fine-grained mode, where
	// every raw hash is asked, only the last of a chunk decides that it is missing.
	chunkPositions int
}

// newGroupSets sorts the groups of a pool into group sets.
func newGroupSets(c *coordinator.Coordinator) []groupSet {
	var sets []groupSet
	pool := c.Pool()
	for g := range c.NumGroups() {
		l := groupSet{stride: c.KeyStride(g), mask: c.KeyMask(g), chunkPositions: c.Stride(g) / c.KeyStride(g)}
		at := slices.IndexFunc(sets, func(have groupSet) bool {
			return have.stride == l.stride && have.mask == l.mask && have.chunkPositions == l.chunkPositions
		})
		if at < 0 {
			at = len(sets)
			sets = append(sets, l)
		}
		sets[at].groups = append(sets[at].groups, g)
		if pool.Groups[g].Kind.IsFull() {
			sets[at].full |= 1 << g
		}
	}
	return sets
}
