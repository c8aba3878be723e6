package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/netproto"
)

// asked returns a connection with one lookup under way, sent at 1000 ns, whose answer
// is 48 tokens.
func asked() *conn {
	c := newConn(0, Options{Pipeline: 2}, wire.Socket{})
	c.slots[0] = slot{tag: netproto.TagLookup, sent: 1000, expect: 48}
	c.asked = 1
	return c
}

// An answer that comes too late is an error even if nobody was waiting meanwhile.
func TestJudgeLate(t *testing.T) {
	for _, late := range []int64{0, 1} {
		c := asked()
		c.in = netproto.AppendHit(c.buffer[:0], nil, 48)
		now := 1000 + int64(time.Second) + late
		err := c.checkReplies(now, time.Second, func(*conn, checkedReply) {})
		require.Equal(t, c.overdue(now, time.Second) != nil, err != nil && c.inFlight() > 0)
		if late == 0 {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, measure.ErrLost)
		require.ErrorContains(t, err, "no answer for 1s")
	}
}

// An answer may come byte by byte, and two at once, and one with tail boundaries.
func TestJudgePieces(t *testing.T) {
	tail := netproto.AppendTailBoundary(netproto.AppendTailHit(nil, nil, 48, 1), 0, 48)
	for _, hit := range [][]byte{netproto.AppendHit(nil, nil, 48), tail} {
		for _, expect := range []uint32{48, 49} {
			c := asked()
			c.slots[0].expect = expect
			c.slots[1] = slot{tag: netproto.TagStore}
			c.asked = 2
			var got []checkedReply
			take := func(_ *conn, a checkedReply) { got = append(got, a) }
			for _, b := range netproto.AppendDone(hit[:len(hit):len(hit)], nil, nil) {
				c.in = append(c.buffer[:len(c.in)], b)
				require.NoError(t, c.checkReplies(2000, time.Second, take))
			}
			require.Len(t, got, 2)
			assert.Equal(t, expect != 48, got[0].problem != "")
			assert.Empty(t, got[1].problem)
			assert.Zero(t, c.inFlight())
			c.in = append(c.buffer[:0], 0)
			require.ErrorIs(t, c.checkReplies(2000, time.Second, take), measure.ErrAnswer)
		}
	}
}
