package server

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// Limits that change hold from the next message on, and close nobody: neither who is connected beyond max_connections, nor
// who is in the middle of a message that is too long now.
func TestSetLimits(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	p, other := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
	limitsOf := func(p *lookuptest.Peer) api.Limits {
		var instance api.Instance
		require.NoError(t, json.Unmarshal(p.Ask(t, []byte("ping"))[1], &instance))
		return instance.Limits
	}
	require.EqualValues(t, 64<<20, limitsOf(p).MaxMessage)
	require.EqualValues(t, 64<<20, limitsOf(other).MaxMessage)
	long := lookuptest.Encode([]byte("ping"), bytes.Repeat([]byte("x"), 10_000))
	_, err := p.Write(long[:5000])
	require.NoError(t, err)
	lookuptest.Eventually(t, "it has begun", func() bool { return server.conns.countBusy() == 1 })

	require.ErrorIs(t, server.SetLimits(Limits{MaxMessage: -1}), api.ErrConfig)
	require.NoError(t, server.SetLimits(Limits{MaxMessage: 5000, MaxHashes: 1, MaxConnections: 1, MaxMemory: 64 << 20}))
	_, err = p.Write(long[5000:])
	require.NoError(t, err)
	require.Len(t, p.Next(t)[1], 10_000, "the message that had begun")
	for _, peer := range []*lookuptest.Peer{p, other} {
		require.EqualValues(t, 5000, limitsOf(peer).MaxMessage)
		reply := peer.Ask(t, []byte("lookup"), []byte{0, 0, 0, 32}, []byte{0, 32}, lookuptest.Chain("a", 2, 32))
		require.Contains(t, string(reply[1]), "2 hashes, at most 1")
	}
	lookuptest.DialPeer(t, server.Addrs()[0]).ClosedWithin(t)
	stat := server.Stat()
	require.EqualValues(t, 1, stat.MaxConnections)
	require.EqualValues(t, 64<<20, stat.MaxMemory)
	require.EqualValues(t, 1, stat.Closed["max_connections"])
	_, err = p.Write(long)
	require.NoError(t, err)
	p.ClosedWithin(t)
	require.NoError(t, server.SetLimits(Limits{}))
	require.Len(t, other.Ask(t, []byte("ping"), bytes.Repeat([]byte("x"), 10_000))[1], 10_000)
}

// A timeout that becomes shorter does not close who has waited for longer before.
func TestSetTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := unstarted(t)
		ses := openSession(server, new(replies))
		ping := lookuptest.Encode([]byte("ping"), nil)
		require.NoError(t, serveTurn(ses, ping))
		time.Sleep(time.Hour)
		require.NoError(t, server.SetLimits(Limits{IdleTimeout: time.Minute, MessageTimeout: time.Minute}))
		require.Equal(t, notClosed, ses.conn.overdue(monotime.Now()), "idle for an hour")
		require.NoError(t, serveTurn(ses, ping))
		time.Sleep(time.Minute + 1)
		require.Equal(t, closedIdleTimeout, ses.conn.overdue(monotime.Now()))

		ses = openSession(server, new(replies))
		require.NoError(t, serveTurn(ses, ping[:3]))
		require.NoError(t, server.SetLimits(Limits{MessageTimeout: time.Second}))
		require.NoError(t, serveTurn(ses, ping[3:4]))
		time.Sleep(time.Minute - 1)
		require.Equal(t, notClosed, ses.conn.overdue(monotime.Now()), "a message that has begun has its time")
		require.NoError(t, serveTurn(ses, ping[4:]))
		require.NoError(t, serveTurn(ses, ping[:3]))
		time.Sleep(time.Second + 1)
		require.Equal(t, closedMessageTimeout, ses.conn.overdue(monotime.Now()))

		require.NoError(t, server.SetLimits(Limits{MessageTimeout: time.Minute}))
		require.NoError(t, serveTurn(ses, slices.Concat(ping[3:], ping[:3]))) // who pipelines is always in a message
		time.Sleep(time.Second + 1)
		require.Equal(t, notClosed, ses.conn.overdue(monotime.Now()))
	})
}

// Who has more in flight than max_in_flight when that is lowered is refused more, and is not closed.
func TestSetMaxInFlight(t *testing.T) {
	server := unstarted(t)
	got := new(replies)
	ses := openSession(server, got)
	ses.conn.unanswered.Store(500)
	server.inFlight.Store(500)
	require.NoError(t, server.SetLimits(Limits{MaxInFlight: 10}))
	stat := lookuptest.Encode([]byte("stat"))
	require.NoError(t, serveTurn(ses, stat))
	require.Contains(t, string(got.last), "requests of this connection have no reply yet")
	require.NotErrorIs(t, serveTurn(ses, bytes.Repeat(stat, 5)), errInFlight)
}
