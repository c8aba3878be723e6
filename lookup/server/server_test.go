package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

func TestLookupStoreEvictReset(t *testing.T) {
	c := dialTest(t, startServer(t, blocks16, Limits{}))
	ctx := context.Background()
	keys := lookuptest.Chain("a", 1000, 32)
	hit := func(tokens uint32) uint32 {
		t.Helper()
		n, err := c.Lookup(ctx, int64(tokens), coordinator.NewHashes(keys, 32))
		require.NoError(t, err)
		return uint32(n.Tokens)
	}
	pingClient(t, c)
	require.Zero(t, hit(16000))
	require.NoError(t, c.Store(ctx, coordinator.GroupRank{}, coordinator.NewHashes(keys[:700*32], 32)))
	require.EqualValues(t, 700*16, hit(16000))
	require.EqualValues(t, 480, hit(480))
	require.EqualValues(t, 700*16, hit(1<<32-16), "no more than the hashes cover")
	require.NoError(t, c.Evict(ctx, coordinator.GroupRank{}, coordinator.NewHashes(keys[10*32:11*32], 32)))
	require.EqualValues(t, 160, hit(16000))
	st := statOf(t, c)
	require.EqualValues(t, 699, st.Entries)
	require.EqualValues(t, 700, st.Stored)
	require.EqualValues(t, 1, st.Evicted)
	require.EqualValues(t, 5, st.Lookups)
	require.EqualValues(t, 1, st.Connections)
	require.Equal(t, "0.24.0", st.VLLM)
	require.NoError(t, c.Reset(ctx))
	require.Zero(t, hit(16000))
	require.Zero(t, statOf(t, c).Entries)

	n, err := c.Lookup(ctx, 16, coordinator.NewHashes(nil, 0))
	require.NoError(t, err)
	require.Zero(t, n.Tokens)
}

// TestGarbage sends what is no request to the port while another connection's
// lookups go on.
func TestGarbage(t *testing.T) {
	t.Parallel() // it waits for a second or more
	server := startServer(t, blocks16, Limits{MessageTimeout: 300 * time.Millisecond})
	good := dialTest(t, server)
	keys := lookuptest.Chain("a", 500, 32)
	ctx := context.Background()
	require.NoError(t, good.Store(ctx, coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	random := make([]byte, 10000)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(random)
	random[0] = 0x9E // chance may begin a valid frame
	for name, c := range map[string]struct {
		bytes  []byte
		reason closeReason
	}{
		"random":             {random, closedFirstByte},
		"HTTP":               {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), closedFirstByte},
		"TLS":                {[]byte("\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03"), closedFirstByte},
		"ZMTP 2.0":           {[]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x03\x00\x00"), closedVersion},
		"length 2^63":        {[]byte("\x02\x80\x00\x00\x00\x00\x00\x00\x00"), closedMessageLength},
		"frames without end": {bytes.Repeat([]byte("\x01\x01x"), 1000), closedFrameCount},
		"no delimiter":       {lookuptest.Encode([]byte("\x00id"), []byte("ping")), closedDelimiter},
		"reserved flag":      {append(lookuptest.Encode([]byte("ping")), 0x40), closedFlags},
		"command":            {append(lookuptest.Encode([]byte("ping")), 0x04, 0x00), closedCommand},
		"envelope":           {bytes.Repeat([]byte("\x01\x01\x00"), 20), closedEnvelope},
		"body without end":   {[]byte("\x00\x10abc"), closedMessageTimeout},
	} {
		before := server.peers.closed[c.reason].Load()
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		_, err := p.Write(c.bytes)
		require.NoError(t, err, name)
		p.ClosedWithin(t)
		lookuptest.Eventually(t, name, func() bool { return server.peers.closed[c.reason].Load() == before+1 })
		hit, err := good.Lookup(ctx, 8000, coordinator.NewHashes(keys, 32))
		require.NoError(t, err, name)
		require.EqualValues(t, 8000, hit.Tokens, name)
	}
	closed := statOf(t, good).Closed
	require.EqualValues(t, 3, closed["bad_first_byte"])
	require.EqualValues(t, 1, closed["message_timeout"])
}

// A client that pipelines has always begun the next message; it lives while each of
// them comes in time.
func TestMessageTimeoutIsPerMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := unstarted(t)
		require.NoError(t, server.SetLimits(Limits{MessageTimeout: 500 * time.Millisecond}))
		var got replies
		ses := openSession(server, &got)
		overdue := func() closeReason { return ses.conn.overdue(monotime.Now()) }
		msg := lookuptest.Encode([]byte("ping"), nil)
		require.NoError(t, serveTurn(ses, msg[:1]))
		for range 10 {
			time.Sleep(500 * time.Millisecond)
			require.Equal(t, notClosed, overdue())
			require.NoError(t, serveTurn(ses, append(msg[1:len(msg):len(msg)], msg[0])))
			require.Equal(t, lookuptest.Encode([]byte{1}, nil), got.last)
		}
		time.Sleep(500*time.Millisecond + 1)
		require.Equal(t, closedMessageTimeout, overdue())
	})
}

func TestIdleTimeout(t *testing.T) {
	t.Parallel() // it waits for a second or more
	server := startServer(t, blocks16, Limits{IdleTimeout: 50 * time.Millisecond})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.ClosedWithin(t)
	lookuptest.Eventually(t, "counted", func() bool { return server.peers.closed[closedIdleTimeout].Load() == 1 })
}

// A request or a handshake that has begun has a time of its own, however short that
// of idling is.
func TestIdleIsBetweenRequests(t *testing.T) {
	server := startServer(t, blocks16, Limits{IdleTimeout: time.Second})
	for name, c := range map[string]struct {
		begun string
		want  closeReason
	}{
		"a request":   {"\x00\x04pi", closedMessageTimeout},
		"a handshake": {"\xff", closedHandshakeTimeout},
		"nothing":     {"\x00\x04ping", closedIdleTimeout},
	} {
		ses := openSession(server, new(replies))
		require.NoError(t, serveTurn(ses, []byte(c.begun)))
		now := time.Now()
		if c.want != closedIdleTimeout {
			require.Equal(t, notClosed, ses.conn.overdue(monotime.At(now.Add(5*time.Second))), name)
		}
		require.Equal(t, c.want, ses.conn.overdue(monotime.At(now.Add(time.Hour))), name)
	}
}

// A peer with unread bytes is not idle, even if its busy loop has not read them yet.
func TestUnreadIsNotSilence(t *testing.T) {
	for name, limits := range map[string]Limits{"idle": {IdleTimeout: time.Minute}, "heartbeat": {}} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, blocks16, limits)
			p := dialZMTP(t, server)
			if name == "heartbeat" {
				_, err := p.Write([]byte("\x04\x07\x04PING\xff\xff"))
				require.NoError(t, err)
				p.Reads(t, []byte("\x04\x05\x04PONG"))
				lookuptest.Eventually(t, "noted", func() bool { return server.someSession().conn.times.ttl.Load() > 0 })
			}
			held, release := make(chan struct{}), make(chan struct{})
			server.on(t, func() error { close(held); <-release; return nil })
			<-held
			_, err := p.Write(lookuptest.Encode(nil, []byte("ping"), nil))
			require.NoError(t, err)
			lookuptest.Eventually(t, "it has arrived", func() bool { return server.conns.countUnread() == 1 })
			ses := server.someSession()
			ses.conn.times.lastActive.Store(monotime.At(time.Now().Add(-2 * time.Hour)))
			server.closeOverdue()
			ses.conn.times.lastActive.Store(monotime.Now()) // a sweep may come between a read and its note
			close(release)
			require.Equal(t, [][]byte{{}, {1}, {}}, p.Next(t))
			require.Equal(t, [][]byte{{}, {1}, {}}, p.Ask(t, nil, []byte("ping"), nil))
		})
	}
}

// someSession returns a session.
func (s *Server) someSession() (some *session) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for c := range s.conns.all {
		some = c.protocol.(*session)
	}
	return some
}

func TestMaxConnections(t *testing.T) {
	server := startServer(t, blocks16, Limits{MaxConnections: 2})
	a, b := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
	for _, p := range []*lookuptest.Peer{a, b} {
		require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	}
	lookuptest.DialPeer(t, server.Addrs()[0]).ClosedWithin(t)
	require.EqualValues(t, 1, server.peers.closed[closedMaxConnections].Load())
	require.NoError(t, a.Close())
	lookuptest.Eventually(t, "a place is free again", func() bool { return server.connections.Load() == 1 })
	require.Equal(t, [][]byte{{1}, {}}, lookuptest.DialPeer(t, server.Addrs()[0]).Ask(t, []byte("ping"), nil))
}

func TestSlowReader(t *testing.T) {
	server := startServer(t, blocks16, Limits{MaxUnsent: 256 << 10})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	echo := lookuptest.Encode([]byte("ping"), make([]byte, 60<<10))
	sent := 0
	for ; sent < 10000; sent++ { // never reads
		if _, err := p.Write(echo); err != nil {
			break
		}
	}
	require.Less(t, sent, 10000, "600 MB of replies were taken from a peer that does not read")
	lookuptest.Eventually(t, "counted", func() bool { return server.peers.closed[closedSlowReader].Load() == 1 })
	require.Equal(t, [][]byte{{1}, {}}, lookuptest.DialPeer(t, server.Addrs()[0]).Ask(t, []byte("ping"), nil))
}

// TestManyRepliesInOneTurn makes requests with replies far larger than they are, more than may be in flight.
func TestManyRepliesInOneTurn(t *testing.T) {
	p := lookuptest.DialPeer(t, startServer(t, blocks16, Limits{}).Addrs()[0])
	_, err := p.Write(bytes.Repeat(lookuptest.Encode([]byte("ping")), 5000))
	require.NoError(t, err)
	for range 5000 {
		require.Equal(t, []byte{1}, p.Next(t)[0])
	}
}

func TestRepliesInOrder(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	keys := lookuptest.Chain("a", 300, 32)
	require.NoError(t, server.pools.own.service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	var out []byte
	for i := range 300 {
		head := netproto.AppendLookup(nil, encodeEnvelope(fmt.Sprint("\x00", i)), uint32(16*(i+1)), 32, len(keys))
		out = append(append(out, head...), keys...)
	}
	go func() {
		for len(out) > 0 {
			n := min(len(out), 1+rand.IntN(100000))
			_, _ = p.Write(out[:n])
			out = out[n:]
		}
	}()
	for i := range 300 {
		reply := p.Next(t)
		require.Equal(t, fmt.Sprint("\x00", i), string(reply[0]))
		require.EqualValues(t, 16*(i+1), binary.BigEndian.Uint32(reply[2]))
	}
}

func encodeEnvelope(id string) []byte {
	return netproto.AppendFrame(netproto.AppendFrame(nil, []byte(id), true), nil, true)
}

// TestResetInTheMiddle clears what a lookup half received has found.
func TestResetInTheMiddle(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	keys := lookuptest.Chain("a", 1000, 32)
	require.NoError(t, server.pools.own.service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	msg := append(netproto.AppendLookup(nil, nil, 16000, 32, len(keys)), keys...)
	_, err := p.Write(msg[:len(msg)/2])
	require.NoError(t, err)
	lookuptest.Eventually(t, "the half has arrived", func() bool { return server.conns.countBusy() == 1 })
	server.pools.own.service.Reset(t.Context())
	require.NoError(t, server.pools.own.service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	_, err = p.Write(msg[len(msg)/2:])
	require.NoError(t, err)
	require.Equal(t, [][]byte{{0, 0, 0, 0}}, p.Next(t))
}

func TestCutInTheMiddleLosesNothing(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	keys := lookuptest.Chain("a", 5000, 32)
	store := append(netproto.AppendKeys(nil, nil, netproto.TagStore, netproto.WireRank{}, 32, len(keys)), keys...)
	request := append(netproto.AppendLookup(nil, nil, 80000, 32, len(keys)), keys...)
	for _, msg := range [][]byte{store, request, request[:5], request[:len(request)-1]} {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		_, err := p.Write(msg[:len(msg)-1])
		require.NoError(t, err)
		lookuptest.Eventually(t, "it has arrived", func() bool { return server.conns.countBusy() == 1 })
		require.NoError(t, p.Close())
		lookuptest.Eventually(t, "it is gone", func() bool { return server.connections.Load() == 0 })
	}
	require.EqualValues(t, 4999, server.pools.own.service.Stat().Entries, "keys that arrived before a cut count as stored")
}

func TestStartFailures(t *testing.T) {
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	for _, listen := range []string{"", "/tmp/x", "ipc://tmp/x", "unix:///tmp/x", "udp://127.0.0.1:0"} {
		_, err := New(service, Config{Listeners: []Listener{{Address: listen}}})
		require.ErrorIs(t, err, api.ErrConfig, listen)
	}
	_, err = New(nil, Config{})
	require.ErrorIs(t, err, api.ErrConfig)
}

func TestShutdownDeadline(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	_, err := p.Write([]byte{0x01})
	require.NoError(t, err)
	lookuptest.Eventually(t, "begun", func() bool { return server.conns.countBusy() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, server.Shutdown(ctx), "1 connections cut off")
	p.ClosedWithin(t)
	require.EqualValues(t, 1, server.peers.closed[closedDraining].Load())
}

// replies is a connection that keeps what was written last.
type replies struct{ last []byte }

func (r *replies) Write(b []byte) (int, error) { r.last = append(r.last[:0], b...); return len(b), nil }
func (r *replies) OutboundBuffered() int       { return 0 }

// unstarted returns a server whose sessions a test feeds by hand.
func unstarted(t *testing.T) *Server {
	t.Helper()
	return unstartedOn(t, "tcp://127.0.0.1:0")
}

func unstartedOn(t *testing.T, addr string) *Server {
	t.Helper()
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	server, err := New(service, Config{Listeners: []Listener{{Address: addr}}, Loops: 2})
	require.NoError(t, err)
	return server
}

// TestLookupDoesNotAllocate runs whole requests through a session.
func TestLookupDoesNotAllocate(t *testing.T) {
	if bufpool.Debug {
		t.Skip("the traps of debug builds allocate")
	}
	server := unstarted(t)
	service := server.pools.own.service
	keys := lookuptest.Chain("a", 8192, 32)
	require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys[:6000*32], 32)))
	msg := append(netproto.AppendLookup(nil, encodeEnvelope("\x00id"), 8192*16, 32, len(keys)), keys...)
	var got replies
	ses := openSession(server, &got)
	round := func() {
		for p := msg; len(p) > 0; {
			n := min(len(p), 65521) // odd, so that hashes are cut
			if err := serveTurn(ses, p[:n]); err != nil {
				t.Fatal(err)
			}
			p = p[n:]
		}
	}
	for range 500 { // nobody accounts for them, so all later ones are dropped
		round()
	}
	require.Equal(t, uint32(96000), binary.BigEndian.Uint32(got.last[len(got.last)-4:]))
	require.Zero(t, testing.AllocsPerRun(200, round))
	hashes := coordinator.NewHashes(keys, 32)
	require.Zero(t, testing.AllocsPerRun(200, func() { _, _ = service.Lookup(t.Context(), 8192*16, hashes) }))

	const start = 100_000 // blocks that the engine holds itself
	msg = append(netproto.AppendLookupFrom(nil, encodeEnvelope("\x00id"), netproto.TagLookupFrom, (start+8192)*16, start*16, 32, len(keys)), keys...)
	round()
	require.Equal(t, uint32((start+6000)*16), binary.BigEndian.Uint32(got.last[len(got.last)-4:]))
	require.Zero(t, testing.AllocsPerRun(200, round))
}

// TestHalfLookupsAreSmall stops many lookups of 4 MiB half-way.
func TestHalfLookupsAreSmall(t *testing.T) {
	const sessions = 200
	server := unstarted(t)
	keys := lookuptest.Chain("a", 131072, 32)
	require.NoError(t, server.pools.own.service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	msg := append(netproto.AppendLookup(nil, nil, 131072*16, 32, len(keys)), keys...)
	before := lookuptest.HeapBytes()
	open := make([]*session, sessions)
	for i := range open {
		open[i] = openSession(server, new(replies))
		require.NoError(t, serveTurn(open[i], msg[:len(msg)/2]))
		require.True(t, open[i].conn.reader.InMessage())
	}
	require.Less(t, lookuptest.HeapBytes()-before, int64(sessions*64<<10))
	for _, s := range open {
		s.conn.close()
	}
	runtime.KeepAlive(msg)
}

// TestAnnouncedHashesAreSmall announces many hashes and sends none of them.
func TestAnnouncedHashesAreSmall(t *testing.T) {
	const sessions, hashes = 500, 2 << 20
	for name, msg := range map[string][]byte{
		"lookup":  netproto.AppendLookup(nil, nil, hashes*16, 32, (hashes-100)*32),
		"explain": netproto.AppendLookupFrom(nil, nil, netproto.TagExplain, hashes*16, 0, 32, (hashes-100)*32),
	} {
		t.Run(name, func(t *testing.T) {
			server, before := unstarted(t), lookuptest.HeapBytes()
			open := make([]*session, sessions)
			for i := range open {
				open[i] = openSession(server, new(replies))
				require.NoError(t, serveTurn(open[i], msg))
				require.True(t, open[i].conn.reader.InMessage())
			}
			require.Less(t, lookuptest.HeapBytes()-before, int64(32<<20))
			for _, s := range open {
				s.conn.close()
			}
		})
	}
}
