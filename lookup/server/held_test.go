package server

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// stuckConn is the connection of a peer that reads only what a test says.
type stuckConn struct {
	buffered int
	closed   bool
}

func (c *stuckConn) Write(b []byte) (int, error) { c.buffered += len(b); return len(b), nil }
func (c *stuckConn) OutboundBuffered() int       { return c.buffered }
func (c *stuckConn) Close() error                { c.closed = true; return nil }

// addSession adds the session of a stuckConn to a server.
func addSession(server *Server) (*session, *stuckConn) {
	c := new(stuckConn)
	ses := openSession(server, c)
	server.conns.add(ses.conn)
	return ses, c
}

func ping(size int) []byte { return lookuptest.Encode([]byte("ping"), make([]byte, size)) }

// TestUnfinishedRequestsAreCharged stops requests before their last byte.
func TestUnfinishedRequestsAreCharged(t *testing.T) {
	server := serverOf(t, hybridPool)
	hashes := storeDisagreeing(t, server, 1<<17)
	for name, c := range map[string]struct {
		msg  []byte
		held int64
	}{
		"lookup":      {rawLookup(hashes, 32), 3 * 1 << 14 / 8},
		"explain":     {rawExplain(hashes, 32), int64(len(hashes)) - 32},
		"ping":        {ping(60_000), 50_000},
		"description": {lookuptest.Encode([]byte("pool"), make([]byte, 60_000)), 50_000},
	} {
		d := drive(t, server)
		ses := d.session
		for rest := c.msg[:len(c.msg)-1]; len(rest) > 0; {
			n := min(len(rest), readBuffer)
			require.NoError(t, serveTurn(ses, rest[:n]), name)
			rest = rest[n:]
		}
		require.GreaterOrEqual(t, ses.conn.held.Bytes(), c.held, name)
		require.Equal(t, ses.conn.held.Bytes(), server.heldBytes(), name)
		require.NoError(t, serveTurn(ses, c.msg[len(c.msg)-1:]), name)
		d.finish(t)
		require.LessOrEqual(t, ses.conn.held.Bytes(), int64(10_000), "%s: what an idle connection keeps", name)
		ses.conn.close()
		require.Zero(t, server.heldBytes(), name)
	}
	require.Zero(t, server.admission.Held())
}

// Peers that have as much in flight as they may, and read their replies, are answered, some of them as busy. None is closed.
func TestReadersStayConnected(t *testing.T) {
	const conns, stats = 16, 1000
	server := startServer(t, blocks16, Limits{MaxMemory: 24 << 20})
	for range conns {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Send(t, bytes.Repeat(lookuptest.Encode([]byte("stat")), stats))
		go func() { _, _ = io.Copy(io.Discard, p) }() // ends with the connection
	}
	lookuptest.Eventually(t, "all are answered", func() bool {
		st := server.Stat()
		return st.Requests["stat"] == conns*stats || len(st.Closed) > 0
	})
	require.Empty(t, server.Stat().Closed)
}

// Replies that others do not read leave room for a small lookup of a peer that has nothing else in flight.
func TestOnlyRequestHasRoom(t *testing.T) {
	keys := lookuptest.Chain("a", 256, 32)
	server := startRemote(t, lookuptest.Filled(t, keys), patient, Limits{MaxMemory: 24 << 20})
	for server.admission.Admit(1<<10, false, 0) { // as long as they may have more
	}
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	for range 3 {
		p.Send(t, lookupOf("", keys))
		p.Expect(t, hitText(256))
	}
}

// TestUnsentSince checks from when on a peer takes none of its replies.
func TestUnsentSince(t *testing.T) {
	ses, c := addSession(unstarted(t))
	require.NoError(t, serveTurn(ses, ping(10_000)))
	since := ses.conn.unsent.since.Load()
	require.NotZero(t, since)
	limit := int64(ses.shared.limits.Load().WriteTimeout)
	require.Equal(t, notClosed, ses.conn.overdue(since+limit))
	require.Equal(t, closedWriteTimeout, ses.conn.overdue(since+limit+1))

	require.NoError(t, serveTurn(ses, ping(10_000)))
	require.NoError(t, wake(ses))
	require.Equal(t, since, ses.conn.unsent.since.Load(), "it takes none")
	c.buffered -= 10
	require.NoError(t, serveTurn(ses, ping(10)))
	require.Greater(t, ses.conn.unsent.since.Load(), since, "it has taken some, and there are more")
	c.buffered = 0
	require.NoError(t, wake(ses))
	require.Zero(t, ses.conn.unsent.since.Load())
	require.Equal(t, notClosed, ses.conn.overdue(since+10*limit))
}

// TestWriteTimeout has a peer over a real socket read nothing.
func TestWriteTimeout(t *testing.T) {
	t.Parallel() // it waits for a second or more
	log, logger := lookuptest.NewLog(slog.LevelInfo)
	server := startLogging(t, blocks16, Limits{MaxUnsent: 64 << 20, MaxMemory: 512 << 20, WriteTimeout: 1}, logger)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	msg := ping(netproto.MaxPing)
	for range 32 << 20 / len(msg) { // more than the kernel keeps
		if _, err := p.Write(msg); err != nil {
			break // it is closed
		}
	}
	other := lookuptest.DialPeer(t, server.Addrs()[0])
	require.Equal(t, []byte{1}, other.Ask(t, []byte("ping"))[0])
	lookuptest.Eventually(t, "closed", func() bool { return server.peers.closed[closedWriteTimeout].Load() == 1 })
	lookuptest.Eventually(t, "logged", func() bool {
		lines := log.Take()
		return len(lines) == 1 && strings.HasSuffix(lines[0], `error="no reply was read for limits.write_timeout (1ns)"`)
	})
	require.Equal(t, []byte{1}, other.Ask(t, []byte("ping"))[0])
	require.Zero(t, server.heldBytes())
}

// TestNothingIsChargedAfterTheEnd has connections break while the replies of a store's workers
// are written.
func TestNothingIsChargedAfterTheEnd(t *testing.T) {
	slow := lookuptest.Chain("slow", 8, 32)
	store, g := lookuptest.Filled(t, slow), lookuptest.NewGate()
	store.Holding(g, "exists", fmt.Sprintf("%x", slow[:32]))
	server := startRemote(t, store, patient, Limits{})
	var envelope []byte // a long one, as each waiting request has it
	for range netproto.MaxEnvelopeFrames {
		envelope = netproto.AppendFrame(envelope, make([]byte, netproto.MaxAddress), true)
	}
	envelope = netproto.AppendFrame(envelope, nil, true)
	msg := append(netproto.AppendLookup(nil, envelope, uint32(len(slow)/2), 32, len(slow)), slow...)
	const conns, pings = 10, 1000
	for range pings {
		msg = append(msg, netproto.AppendRequest(nil, envelope, netproto.TagPing)...)
	}
	for range conns {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		_, err := p.Write(msg)
		require.NoError(t, err)
		go func() { // the replies follow the slow lookup's, in many writes
			_, _ = p.Read(make([]byte, 1))
			_ = p.Conn.(*net.TCPConn).SetLinger(0)
			_ = p.Close()
		}()
	}
	lookuptest.Eventually(t, "all requests wait", func() bool { return server.inFlight.Load() == conns*(1+pings) })
	require.Positive(t, server.heldBytes())
	close(g.Open)
	lookuptest.Eventually(t, "closed", func() bool { return server.conns.number() == 0 })
	lookuptest.Eventually(t, "nothing is held", func() bool { return server.heldBytes() == 0 })
}

// Peers that make no progress give way to those that wait for requests of their own.
func TestLateGiveWayToWaiting(t *testing.T) {
	t.Parallel() // it waits for a second or more
	keys, long := lookuptest.Chain("a", 256, 32), lookuptest.Chain("long", 4000, 32)
	store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
	store.Holding(g, "store", "")
	server := startRemote(t, store, patient, Limits{MaxMemory: 24 << 20})
	t.Cleanup(func() { close(g.Open) })
	for range 60 {
		lookuptest.DialPeer(t, server.Addrs()[0]).Send(t, lookupOf("", long)[:32*4000])
	}
	closed := func() int64 { return server.Stat().Closed["memory"] }
	for range 30 { // more than there is memory for
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		_, _ = p.Write(append(storeOf("", netproto.TagStore, keys[:32]), bytes.Repeat(lookupOf("", keys), 16)...))
	}
	lookuptest.Eventually(t, "some are closed", func() bool { return closed() > 0 })
	lookuptest.Eventually(t, "there is room for one that waits", func() bool {
		before := closed()
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		_, _ = p.Write(append(storeOf("", netproto.TagStore, keys[:32]), bytes.Repeat(lookupOf("", keys), 16)...))
		time.Sleep(100 * time.Millisecond)
		return closed() == before
	})
}
