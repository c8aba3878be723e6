package server

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A connection goes through its states in one direction, and has the first reason that it was given.
func TestLifeOfAConnection(t *testing.T) {
	for name, steps := range map[string][]struct {
		enter  connState
		reason closeReason
		moved  bool
		then   connState
		why    closeReason
	}{
		"the peer closes":        {{stateClosed, closedByPeer, true, stateClosed, closedByPeer}, {stateEnding, closedMemory, false, stateClosed, closedByPeer}},
		"two reasons":            {{stateEnding, closedMemory, true, stateEnding, closedMemory}, {stateEnding, closedDraining, false, stateEnding, closedMemory}},
		"a reason, and the end":  {{stateEnding, closedFlags, true, stateEnding, closedFlags}, {stateClosed, closedByPeer, true, stateClosed, closedFlags}},
		"a FIN after the reason": {{stateEnding, closedExpired, true, stateEnding, closedExpired}, {stateHalfClosed, notClosed, false, stateEnding, closedExpired}},
		"a FIN before it": {
			{stateHalfClosed, notClosed, true, stateHalfClosed, notClosed},
			{stateEnding, closedWriteTimeout, true, stateEnding, closedWriteTimeout},
			{stateClosed, closedByPeer, true, stateClosed, closedWriteTimeout},
		},
	} {
		c := openSession(unstarted(t), new(replies)).conn
		for i, s := range steps {
			require.Equal(t, s.moved, c.enter(s.enter, s.reason), "%s: step %d", name, i)
			require.Equal(t, s.then, c.state(), "%s: step %d", name, i)
			require.Equal(t, s.why, c.reason(), "%s: step %d", name, i)
			require.Equal(t, s.then >= stateEnding, c.isEnding(), "%s: step %d", name, i)
		}
	}
}

// fakeEvictable holds memory.
type fakeEvictable struct {
	bytes        int64
	ending, late bool
	evicted      bool
}

func (h *fakeEvictable) admitted() int64 { return h.bytes }
func (h *fakeEvictable) isEnding() bool  { return h.ending }
func (h *fakeEvictable) isLate() bool    { return h.late }
func (h *fakeEvictable) evict()          { h.evicted = true }

// Memory is freed of those who are late and hold most, no more than is short. What ends anyhow counts.
func TestWhoIsEvicted(t *testing.T) {
	for name, c := range map[string]struct {
		over int64
		all  []fakeEvictable
		want []int
	}{
		"the largest first":     {100, []fakeEvictable{{bytes: 10, late: true}, {bytes: 90, late: true}, {bytes: 20, late: true}}, []int{1, 2}},
		"nobody who is in time": {100, []fakeEvictable{{bytes: 500}, {bytes: 10, late: true}}, []int{1}},
		"who ends is enough":    {100, []fakeEvictable{{bytes: 100, ending: true, late: true}, {bytes: 300, late: true}}, nil},
		"who ends is too few":   {101, []fakeEvictable{{bytes: 100, ending: true}, {bytes: 300, late: true}, {bytes: 2, late: true}}, []int{1}},
		"who holds nothing":     {1, []fakeEvictable{{late: true}}, nil},
	} {
		all := make([]evictable, len(c.all))
		for i := range c.all {
			all[i] = &c.all[i]
		}
		evictLate(c.over, all)
		var evicted []int
		for i, h := range c.all {
			if h.evicted {
				evicted = append(evicted, i)
			}
		}
		require.True(t, slices.Equal(c.want, evicted), "%s: %v", name, evicted)
	}
}
