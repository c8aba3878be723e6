package server

import (
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
