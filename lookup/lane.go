package lookup

import "github.com/hitline/hitline/coordinator"

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
		at := len(lanes)
		for i := range lanes {
			if lanes[i].stride == l.stride && lanes[i].mask == l.mask && lanes[i].whole == l.whole {
				at = i
			}
		}
		if at == len(lanes) {
			lanes = append(lanes, l)
		}
		lanes[at].groups = append(lanes[at].groups, g)
		switch pool.Groups[g].Kind {
		case coordinator.FullAttention, coordinator.MLAAttention, coordinator.SinkFullAttention:
			lanes[at].full |= 1 << g
		}
	}
	return lanes
}

// peekTokens is how far behind the first missing chunk of a full-attention group
// the rules may still look: one block for each EAGLE group.
func peekTokens(c *coordinator.Coordinator) int64 {
	var tokens int64
	for g, group := range c.Pool().Groups {
		if c.IsEagle(g) {
			tokens += int64(group.BlockSize)
		}
	}
	return tokens
}
