package server

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/netproto"
)

// Each answered request counts under its own name, on whatever event loop, also if it is refused.
func TestRequestsAreCounted(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server := startWith(t, store, settingsOf(t, access.All, tokenOf("nothing", 0)))
		require.Empty(t, server.Stat().Requests)
		want, requests := map[string]int64{}, requestsOf(blocks16.Pool)
		requests = append(requests, [][]byte{[]byte("reset_rank"), bytes.Repeat([]byte{0xff}, 8)}, // over a store a reset
			[][]byte{[]byte("nonsense")}, authFrames("nothing"), authFrames("nobody"))
		for i := range 4 { // over 2 event loops
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			if i >= 2 { // which may do nothing
				auth(t, p, "nothing")
				want["auth"]++
			}
			for _, frames := range requests {
				p.Ask(t, frames...)
				name := string(frames[0])
				if name == "nonsense" {
					name = "unknown"
				}
				want[name]++
			}
			require.Equal(t, want, server.Stat().Requests)
		}
		require.Len(t, want, netproto.NumTags)
		require.ElementsMatch(t, RequestTags(), slices.Collect(maps.Keys(want)))
		require.Len(t, server.loops.all, 2)
		for _, l := range server.loops.all {
			require.Positive(t, l.metrics.requests[netproto.TagPing].Load())
		}
	})
}

// A stat counts the requests that were answered before it, also those that arrived together with it.
func TestStatCountsWhatIsBeforeIt(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		p := lookuptest.DialPeer(t, startWith(t, store, Settings{}).Addrs()[0])
		ping, stat := plainOf("", netproto.TagPing), plainOf("", netproto.TagStat)
		p.Send(t, lookupOf("", nil))
		p.Next(t)
		for _, want := range []map[string]int64{{"ping": 2, "lookup": 1}, {"ping": 4, "lookup": 1, "stat": 1}} {
			p.Send(t, slices.Concat(ping, ping, stat))
			p.Next(t)
			p.Next(t)
			require.Equal(t, want, poolIn(t, p.Next(t)).Requests)
		}
	})
}

// A tenant is not told how many requests others make.
func TestTenantSeesNoRequests(t *testing.T) {
	server := startTenants(t, "a")
	require.Empty(t, poolOf(t, dialTenant(t, server, "ab")).Requests)
	require.NotEmpty(t, server.Stat().Requests)
}

// countedWrites is a connection that checks at each write that the replies in it have been counted.
type countedWrites struct {
	t      *testing.T
	server *Server
	pings  int64 // replies that were written
}

func (c *countedWrites) Write(b []byte) (int, error) {
	c.pings += int64(bytes.Count(b, []byte("\x01\x01\x01"))) // a frame of one byte that says done, and more follow
	require.Equal(c.t, c.pings, c.server.Stat().Requests["ping"])
	return len(b), nil
}

func (*countedWrites) OutboundBuffered() int { return 0 }

// Who has a reply finds its request counted, also if the turn goes on after it.
func TestRequestsAreCountedBeforeTheirReplies(t *testing.T) {
	server := unstarted(t)
	conn := &countedWrites{t: t, server: server}
	ping := plainOf("", netproto.TagPing, make([]byte, flushAt/2))
	require.NoError(t, serveTurn(openSession(server, conn), bytes.Repeat(ping, 5)))
	require.EqualValues(t, 5, conn.pings)
}
