package index

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// checkFreeSegments follows the lists of segments with free slots.
func checkFreeSegments(t testing.TB, x *Index) {
	t.Helper()
	listed := 0
	for level := 1; level <= freeLevels; level++ {
		if x.freeSegments.some>>(level-1)&1 == 0 {
			continue
		}
		before := int32(-1)
		for id := x.freeSegments.first[level]; id >= 0; id = x.segments[id].near[1] {
			seg := &x.segments[id]
			require.Equal(t, level, seg.level)
			require.Equal(t, before, seg.near[0])
			before = id
			listed++
		}
		require.GreaterOrEqual(t, before, int32(0), "an empty list")
	}
	for _, seg := range x.segments {
		if seg.segmentMeta != nil && seg.level > 0 {
			listed--
		}
	}
	require.Zero(t, listed, "segments in a list")
}

// checkClasses compares the classes with how many entries have each.
func checkClasses(t testing.TB, x *Index, counts []uint32) {
	t.Helper()
	c := x.classes
	live, idle := 0, map[class]bool{}
	for _, id := range c.idle {
		require.False(t, idle[id], "an idle class is listed twice")
		idle[id] = true
	}
	for id := 1; id < len(c.use); id++ {
		u, cov := c.use[id], c.coverage[id]
		require.Equal(t, counts[id], u.entries, "entries of class %d", id)
		require.Equal(t, idle[class(id)], u.idle)
		if cov == nil {
			require.Zero(t, u.entries)
			continue
		}
		live++
		require.True(t, u.entries > 0 || u.idle, "class %d has no entry and is not freed", id)
		found := c.byHash[cov.hash]
		for found != class(id) {
			require.NotEqual(t, noClass, found, "class %d is not found", id)
			found = c.use[found].next
		}
	}
	require.Equal(t, live, c.live)
	free := 0
	for id := c.free; id != noClass; id = c.use[id].next {
		require.Nil(t, c.coverage[id])
		free++
	}
	require.Equal(t, c.numbers-1, live+free, "numbers")
	require.LessOrEqual(t, c.bytes(), c.budget)
}
