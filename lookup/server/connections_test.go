package server

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/netproto"
)

// connectionOf returns what the server tells of a peer's connection, once it is open.
func connectionOf(t testing.TB, server *Server, p *lookuptest.Peer) (c Connection) {
	t.Helper()
	lookuptest.Eventually(t, "it is open", func() bool {
		total, list := server.Connections(1000)
		i := slices.IndexFunc(list, func(c Connection) bool { return c.Peer == p.LocalAddr().String() })
		if i >= 0 {
			c = list[i]
		}
		return i >= 0 && len(list) == total
	})
	return c
}

// Every reply is counted for its connection when it is read, with the bytes of both directions.
func TestConnectionCounters(t *testing.T) {
	overBoth(t, func(t *testing.T, store *lookuptest.KeyStore) {
		server := startWith(t, store, settingsOf(t, access.All&^access.Reset, tokenOf("all", access.All)))
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		want := Connection{Peer: p.LocalAddr().String(), Listen: server.Addrs()[0]}
		ask := func(message []byte) {
			t.Helper()
			p.Send(t, message)
			reply := p.Next(t)
			want.Requests, want.InBytes, want.OutBytes = want.Requests+1, want.InBytes+int64(len(message)), want.OutBytes+int64(len(lookuptest.Encode(reply...)))
			got := connectionOf(t, server, p)
			require.Less(t, time.Since(got.Since), lookuptest.Patience)
			require.GreaterOrEqual(t, got.IdleMS, int64(0))
			got.Since, got.IdleMS = time.Time{}, 0
			require.Equal(t, want, got, "%q", message[:min(len(message), 20)])
		}
		require.Empty(t, connectionOf(t, server, p).Protocol)
		want.Protocol = "raw"
		chain := lookuptest.Chain("a", 8, 32)
		ask(storeOf("", netproto.TagStore, chain))
		for range 3 {
			want.Lookups++
			ask(lookupOf("", chain))
		}
		want.Lookups++
		ask(planOf("", chain))
		ask(plainOf("", netproto.TagPing, []byte("echo")))
		ask(plainOf("", netproto.TagStat))
		want.Refused++
		ask(plainOf("", netproto.TagUnknown))
		want.Refused++
		ask(lookuptest.Encode([]byte("lookup"), []byte{17}))
		want.Refused++
		ask(plainOf("", netproto.TagReset))
		want.Credential = "all"
		ask(lookuptest.Encode(authFrames("all")...))
		ask(plainOf("", netproto.TagReset))
		want.Credential, want.Refused = "", want.Refused+1
		ask(lookuptest.Encode(authFrames("nobody")...))
		total, list := server.Connections(0)
		require.Equal(t, 1, total)
		require.Empty(t, list)
		require.NoError(t, p.Close())
		lookuptest.Eventually(t, "it is closed", func() bool { total, _ := server.Connections(1); return total == 0 })
	})
}

// A request that waits for a backend is in flight, and refused ones beside it count one by one.
func TestConnectionInFlight(t *testing.T) {
	store, g := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{MaxInFlight: 1})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, lookupOf("a", lookuptest.Chain("a", 4, 32)), plainOf("b", netproto.TagPing), plainOf("b", netproto.TagPing))
	lookuptest.Eventually(t, "refused", func() bool { return connectionOf(t, server, p).Refused == 2 })
	got := connectionOf(t, server, p)
	require.EqualValues(t, 1, got.InFlight)
	close(g.Open)
	p.Expect(t, "b 00", "b 00", "a "+hitText(0))
	got = connectionOf(t, server, p)
	require.Equal(t, []int64{3, 1, 2, 0}, []int64{got.Requests, got.Lookups, got.Refused, got.InFlight})
}

// The connections with the most requests come first, of equally many the oldest.
func TestConnectionsAreRanked(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	var peers []string
	for _, requests := range []int{2, 0, 5, 2, 1} {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		peers = append(peers, p.LocalAddr().String())
		for range requests {
			p.Ask(t, []byte("ping"))
		}
		connectionOf(t, server, p)
	}
	names := func(limit int) (names []string) {
		total, list := server.Connections(limit)
		require.Equal(t, 5, total)
		for _, c := range list {
			names = append(names, c.Peer)
		}
		return names
	}
	ranked := []string{peers[2], peers[0], peers[3], peers[4], peers[1]}
	require.Equal(t, ranked, names(5))
	require.Equal(t, ranked[:2], names(2))
	require.Equal(t, ranked, names(100))
	require.Empty(t, names(-1))
}

// A connection tells its pool, which changes, and none after a refused description.
func TestConnectionPool(t *testing.T) {
	server := startTenants(t, "a", "b")
	p := dialTenant(t, server, "ab")
	got := connectionOf(t, server, p)
	require.Equal(t, [2]string{"ab", "a"}, [2]string{got.Credential, got.Pool})
	describe(t, p, []byte(`{"name":"b"}`))
	require.Equal(t, "b", connectionOf(t, server, p).Pool)
	describe(t, p, []byte(`{"name":"c"}`))
	require.Empty(t, connectionOf(t, server, p).Pool)
}

// The protocol of a ZMTP connection is known from its greeting on.
func TestConnectionZMTP(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, []byte{0xff})
	lookuptest.Eventually(t, "its greeting", func() bool { return connectionOf(t, server, p).Protocol == "zmtp" })
}

// A TLS connection has the address of its peer, not that of the pair.
func TestConnectionTLS(t *testing.T) {
	server, _ := startTLSServer(t, Limits{}, Settings{TLS: serverTLS})
	p := dialTLS(t, server, clientTLS())
	p.Ask(t, []byte("ping"))
	got := connectionOf(t, server, p)
	require.True(t, got.TLS)
	require.Equal(t, server.Addrs()[0], got.Listen)
	require.EqualValues(t, len(lookuptest.Encode([]byte("ping"))), got.InBytes)
}

// Idle time begins with the last byte.
func TestConnectionIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ses := openSession(unstarted(t), new(replies))
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 3000, ses.connection().IdleMS)
		require.NoError(t, turn(ses, plainOf("", netproto.TagPing)))
		require.Zero(t, ses.connection().IdleMS)
		require.Equal(t, 3*time.Second, time.Since(ses.connection().Since))
	})
}

// Replies that are written in the middle of a turn, and those of one that is cut, count once.
func TestConnectionCountsTurns(t *testing.T) {
	server := serverOf(t, coordinator.Pool{HashBlockSize: 16})
	ses := openSession(server, new(allReplies))
	var message []byte
	for i := range 500 {
		message = append(message, lookupOf("", lookuptest.Chain(fmt.Sprint(i), 40, 32))...)
		message = append(message, plainOf("", netproto.TagPing, make([]byte, 1000))...)
	}
	require.NoError(t, turn(ses, message))
	for ses.isKeeping() { // its event loop would serve others
		require.NoError(t, wake(ses))
	}
	got := ses.connection()
	require.Equal(t, []int64{1000, 500, 0, int64(len(message))}, []int64{got.Requests, got.Lookups, got.Refused, got.InBytes})
}
