package lookup

import (
	"slices"

	"github.com/hitline/hitline/coordinator"
)

// lane is a set of groups whose chunks are asked at the same positions. Position
// i of a lane stands for raw hash i*stride + stride - 1.
type lane struct {
	stride int
	mask   coordinator.Mask // which positions are asked
	groups []int
	// full has bit g set for the groups of the full-attention family: the hit
	// ends at their first missing chunk.
	full uint64
	// whole is how many positions make a chunk: 1, but in fine-grained mode, where
	// every raw hash is asked, only the last of a chunk decides that it is missing.
	whole int
}

// newLanes sorts the groups of a pool into lanes.
func newLanes(c *coordinator.Coordinator) []lane {
	var lanes []lane
	pool := c.Pool()
	for g := range c.NumGroups() {
		l := lane{stride: c.AskStride(g), mask: c.AskMask(g), whole: c.Stride(g) / c.AskStride(g)}
		at := slices.IndexFunc(lanes, func(have lane) bool {
			return have.stride == l.stride && have.mask == l.mask && have.whole == l.whole
		})
		if at < 0 {
			at = len(lanes)
			lanes = append(lanes, l)
		}
		lanes[at].groups = append(lanes[at].groups, g)
		if pool.Groups[g].Kind.IsFull() {
			lanes[at].full |= 1 << g
		}
	}
	return lanes
}
