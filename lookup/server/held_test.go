package server

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// stuckConn is the connection of a peer that reads only what a test says.
type stuckConn struct {
	gnet.Conn
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
	server.sessions[ses] = c
	return ses, c
}

// closeLargestIfOver does what watch does.
func (s *Server) closeLargestIfOver() {
	select {
	case <-s.overMemory:
		s.closeLargest()
	default:
	}
}

func ping(size int) []byte { return lookuptest.Encode([]byte("ping"), make([]byte, size)) }

// TestLargestIsClosed has the account exceed its bound: the connection that holds most is
// closed, and no more than is needed.
func TestLargestIsClosed(t *testing.T) {
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	server, err := New(service, Config{Limits: Limits{MaxMemory: 100_000}})
	require.NoError(t, err)
	a, aConn := addSession(server)
	b, bConn := addSession(server)
	c, cConn := addSession(server)
	require.NoError(t, turn(a, ping(30_000)))
	require.NoError(t, turn(b, ping(40_000)))
	bytes, most, refused := server.memory.Usage()
	require.InDelta(t, 70_000, bytes, 1000)
	require.EqualValues(t, 100_000, most)
	require.Zero(t, refused)

	server.closeLargestIfOver()
	require.NoError(t, turn(c, ping(35_000)))
	require.Equal(t, []bool{false, false, false}, []bool{aConn.closed, bConn.closed, cConn.closed})
	server.closeLargestIfOver()
	require.Equal(t, []bool{false, true, false}, []bool{aConn.closed, bConn.closed, cConn.closed})
	require.Equal(t, closedMemory, closeReason(b.reason.Load()))
	require.NoError(t, turn(a, ping(20_000))) // that of b will be free
	server.closeLargestIfOver()
	require.Equal(t, []bool{false, true, false}, []bool{aConn.closed, bConn.closed, cConn.closed})
	require.NoError(t, turn(c, ping(35_000)))
	server.closeLargestIfOver()
	require.Equal(t, []bool{false, true, true}, []bool{aConn.closed, bConn.closed, cConn.closed})
	require.EqualValues(t, 2, server.Stat().MemoryRefused)
	for _, ses := range []*session{a, b, c} {
		ses.close()
	}
	require.Zero(t, server.heldBytes())
	require.Zero(t, server.Stat().Memory)
}

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
			require.NoError(t, turn(ses, rest[:n]), name)
			rest = rest[n:]
		}
		require.GreaterOrEqual(t, ses.held.Load(), c.held, name)
		require.Equal(t, ses.held.Load(), server.heldBytes(), name)
		require.Zero(t, server.admission.Held(), "%s: it has not arrived", name)
		bytes, _, _ := server.memory.Usage()
		require.GreaterOrEqual(t, bytes, c.held, name)
		require.NoError(t, turn(ses, c.msg[len(c.msg)-1:]), name)
		d.finish(t)
		require.LessOrEqual(t, ses.held.Load(), int64(10_000), "%s: what an idle connection keeps", name)
		require.Zero(t, server.admission.Held(), name)
		ses.close()
		require.Zero(t, server.heldBytes(), name)
	}
	bytes, _, _ := server.memory.Usage()
	require.Zero(t, bytes)
}

// TestChargesAreRounded checks that an event loop charges in steps: bytes that come and go change
// nothing that other loops use, and nothing stays charged when the connections are closed.
func TestChargesAreRounded(t *testing.T) {
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	server, err := New(service, Config{Loops: 2, Limits: Limits{MaxMemory: 64_000}})
	require.NoError(t, err)
	step := server.heldStepOf()
	require.EqualValues(t, 1000, step)
	one, other := loopMetrics{heldStep: step}, loopMetrics{heldStep: step}
	a, _ := addSession(server)
	b, _ := addSession(server)
	a.metrics, b.metrics = &one, &other

	for range 10 {
		require.True(t, a.charge(900, step))
		require.True(t, b.charge(1900, step))
		require.EqualValues(t, 3000, server.charged.Load())
		require.EqualValues(t, 2800, server.heldBytes()+one.held.Load()+other.held.Load())
		require.True(t, a.charge(-900, step))
		require.True(t, b.charge(-1900, step))
		require.EqualValues(t, 3000, server.charged.Load(), "at most two steps are spare")
	}
	require.True(t, a.charge(3500, step))
	require.EqualValues(t, 6000, server.charged.Load())
	require.True(t, a.charge(-3500, step))
	require.EqualValues(t, 3000, server.charged.Load())

	require.False(t, b.charge(63_500, step), "the bound")
	require.EqualValues(t, 65_000, server.charged.Load())
	require.True(t, b.charge(-63_500, 0))
	a.held.Store(500)
	require.True(t, a.charge(500, step))
	a.close()
	require.Zero(t, server.charged.Load())
	bytes, _, _ := server.memory.Usage()
	require.Zero(t, bytes)
}

// TestUnsentSince checks from when on a peer takes none of its replies.
func TestUnsentSince(t *testing.T) {
	ses, c := addSession(unstarted(t))
	require.NoError(t, turn(ses, ping(10_000)))
	since := ses.unsentSince.Load()
	require.NotZero(t, since)
	limit := int64(ses.server.limits.WriteTimeout)
	require.Equal(t, closedByPeer, ses.server.overdue(ses, since+limit))
	require.Equal(t, closedWriteTimeout, ses.server.overdue(ses, since+limit+1))

	require.NoError(t, turn(ses, ping(10_000)))
	require.NoError(t, wake(ses))
	require.Equal(t, since, ses.unsentSince.Load(), "it takes none")
	c.buffered -= 10
	require.NoError(t, turn(ses, ping(10)))
	require.Greater(t, ses.unsentSince.Load(), since, "it has taken some, and there are more")
	c.buffered = 0
	require.NoError(t, wake(ses))
	require.Zero(t, ses.unsentSince.Load())
	require.Equal(t, closedByPeer, ses.server.overdue(ses, since+10*limit))
}

// TestWriteTimeout has a peer over a real socket read nothing.
func TestWriteTimeout(t *testing.T) {
	t.Parallel() // it waits for a second or more
	log, logger := lookuptest.NewLog(slog.LevelInfo)
	server := startLogging(t, blocks16, Limits{MaxUnsent: 64 << 20, MaxMemory: 64 << 20, WriteTimeout: 1}, logger)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	msg := ping(netproto.MaxPing)
	for range 32 << 20 / len(msg) { // more than the kernel keeps
		if _, err := p.Write(msg); err != nil {
			break // it is closed
		}
	}
	other := lookuptest.DialPeer(t, server.Addrs()[0])
	require.Equal(t, []byte{1}, other.Ask(t, []byte("ping"))[0])
	lookuptest.Eventually(t, "closed", func() bool { return server.closed[closedWriteTimeout].Load() == 1 })
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
	lookuptest.Eventually(t, "closed", func() bool { return server.numSessions() == 0 })
	lookuptest.Eventually(t, "nothing is held", func() bool { return server.heldBytes() == 0 })
}
