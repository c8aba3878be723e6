package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/monotime"
)

// dialKnownZMTP connects a ZMTP peer of which the server knows that it is one.
func dialKnownZMTP(t testing.TB, s *Server) *lookuptest.Peer {
	t.Helper()
	p := dialZMTP(t, s)
	require.Equal(t, [][]byte{{}, {1}, []byte("x")}, p.Ask(t, nil, []byte("ping"), []byte("x")))
	return p
}

// isDraining asks for the instance by a raw ping.
func isDraining(t testing.TB, p *lookuptest.Peer) bool {
	t.Helper()
	var instance api.Instance
	require.NoError(t, json.Unmarshal(p.Ask(t, []byte("ping"))[1], &instance))
	return instance.Draining
}

// drainUntil calls Drain in the background until the test ends it. ended is closed when it has returned.
func drainUntil(t testing.TB, s *Server, delay time.Duration) (end func(), ended chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended = make(chan struct{})
	go func() { defer close(ended); s.Drain(ctx, delay) }()
	return func() { cancel(); <-ended }, ended
}

// A server that will stop says so at once, in pings of any pool and to probes, and serves everything for the delay.
func TestDrainTellsAtOnce(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	p, zmtp := lookuptest.DialPeer(t, server.Addrs()[0]), dialKnownZMTP(t, server)
	require.False(t, isDraining(t, p))
	require.NoError(t, server.Ready())
	end, _ := drainUntil(t, server, time.Hour)
	lookuptest.Eventually(t, "pings tell it", func() bool { return isDraining(t, p) })
	require.ErrorIs(t, server.Ready(), ErrNotReady)
	require.ErrorContains(t, server.Ready(), "draining")
	require.True(t, isDraining(t, lookuptest.DialPeer(t, server.Addrs()[0])), "new connections are served")
	time.Sleep(2 * zmtpPause)
	require.Len(t, zmtp.Ask(t, nil, []byte("ping"), nil), 3, "and ZMTP, after a pause, too")
	end()
	require.NoError(t, server.Shutdown(t.Context()))
	zmtp.ClosedWithin(t)
}

// After the delay ZMTP connections are closed, each after a pause, and nobody else is. Those that come back are not waited for.
func TestDrainOfZMTP(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	raw := lookuptest.DialPeer(t, server.Addrs()[0])
	require.False(t, isDraining(t, raw))
	busy := dialKnownZMTP(t, server)
	_, err := busy.Write([]byte("\x01\x00\x01\x04pi")) // begins a request
	require.NoError(t, err)
	paused := dialKnownZMTP(t, server)
	_, ended := drainUntil(t, server, 0)
	paused.ClosedWithin(t)
	require.True(t, isDraining(t, raw))
	select {
	case <-ended:
		require.Fail(t, "a request is not answered")
	default:
	}
	again := dialKnownZMTP(t, server)
	_, err = again.Write([]byte("\x01\x00\x01\x04pi"))
	require.NoError(t, err)
	_, err = busy.Write([]byte("ng\x00\x00"))
	require.NoError(t, err)
	require.Equal(t, [][]byte{{}, {1}, {}}, busy.Next(t))
	busy.ClosedWithin(t)
	lookuptest.Eventually(t, "who came back is not waited for", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	require.True(t, isDraining(t, raw), "raw connections stay")
	require.EqualValues(t, 2, server.peers.closed[closedDraining].Load())
}

// A ZMTP connection is closed when nothing has happened on it for the pause, a raw one is not before Shutdown.
func TestWhoIsClosing(t *testing.T) {
	server := unstarted(t)
	raw, zmtp := openSession(server, new(replies)), openSession(server, new(replies))
	zmtp.conn.times.zmtp.Store(true)
	for _, test := range []struct {
		phase     phase
		silent    time.Duration
		raw, zmtp bool
	}{
		{phaseServing, time.Hour, false, false},
		{phaseDraining, time.Hour, false, false},
		{phaseClosingZMTP, 0, false, false},
		{phaseClosingZMTP, zmtpPause, false, true},
		{phaseShutdown, time.Hour, false, false},
		{phaseClosingAll, 0, true, true},
	} {
		server.phase.advance(test.phase)
		for _, ses := range []*session{raw, zmtp} {
			ses.conn.times.lastActive.Store(monotime.Now() - int64(test.silent))
			require.Equal(t, ses == raw && test.raw || ses == zmtp && test.zmtp, server.isClosing(ses.conn), "%+v", test)
			ses.conn.times.lastActive.Store(monotime.Now() + int64(time.Hour))
			require.Equal(t, test.phase == phaseClosingAll, server.isClosing(ses.conn), "active")
		}
	}
}

// No connection is closed before nothing listens any more: its client would come back.
func TestListenersCloseFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	server, err := serveOn(t, nil, "tcp://127.0.0.1:0", "ipc://"+path)
	require.NoError(t, err)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	require.False(t, isDraining(t, p))
	for range maxEnrolling { // as if connections were being accepted
		server.acceptor.enrolling <- struct{}{}
	}
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(context.Background()) }()
	lookuptest.Eventually(t, "nothing listens", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.Addrs()[0], "tcp://"))
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, unix.ECONNREFUSED)
	})
	for range 20 {
		require.True(t, isDraining(t, p))
	}
	for range maxEnrolling {
		<-server.acceptor.enrolling
	}
	require.NoError(t, <-down)
	require.NoFileExists(t, path)
	p.ClosedWithin(t)
}

// The next server takes the path of a unix socket over from one that is about to stop, which then leaves it alone.
func TestIPCTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old, err := serveOn(t, nil, "ipc://"+path)
	require.NoError(t, err)
	before := lookuptest.DialPeer(t, old.Addrs()[0])
	require.False(t, isDraining(t, before))
	_, err = serveOn(t, nil, "ipc://"+path)
	require.ErrorIs(t, err, unix.EADDRINUSE, "it does not stop")
	end, _ := drainUntil(t, old, time.Hour)
	lookuptest.Eventually(t, "draining", old.Draining)
	next, err := serveOn(t, nil, "ipc://"+path)
	require.NoError(t, err)
	require.False(t, isDraining(t, lookuptest.DialPeer(t, next.Addrs()[0])), "who connects now has the next one")
	require.True(t, isDraining(t, before))
	end()
	require.NoError(t, old.Shutdown(t.Context()))
	require.False(t, isDraining(t, lookuptest.DialPeer(t, next.Addrs()[0])))
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, next.Shutdown(t.Context()))
	require.NoFileExists(t, path)
}

// A server ends when its last connection does: who was on it waits for the next one.
func TestDrainEndsWithTheLastConnection(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	server.closePoll = time.Hour
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	require.False(t, isDraining(t, p))
	_, err := p.Write([]byte("\x01\x04pi")) // begins a request
	require.NoError(t, err)
	lookuptest.Eventually(t, "begun", func() bool { return server.conns.countBusy() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), lookuptest.Patience)
	defer cancel()
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(ctx) }()
	lookuptest.Eventually(t, "it closes connections", func() bool { return server.phase.reached(phaseClosingAll) })
	_, err = p.Write([]byte("ng\x00\x00"))
	require.NoError(t, err)
	require.Equal(t, []byte{1}, p.Next(t)[0])
	p.ClosedWithin(t)
	require.NoError(t, <-down)
	require.NoError(t, ctx.Err())
}
