package server

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/server/internal/listen"
)

// on makes the loop of the only connection run a function.
func (s *Server) on(t testing.TB, run func() error) {
	t.Helper()
	require.NoError(t, s.only(t).EventLoop().Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error { return run() })))
}

// only returns the only connection.
func (s *Server) only(t testing.TB) (only gnet.Conn) {
	t.Helper()
	lookuptest.Eventually(t, "one connection", func() bool { return s.conns.number() == 1 })
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for c := range s.conns.all {
		only = c.wire.(gnet.Conn)
	}
	return only
}

// A server that drains no longer listens: the next one can have its addresses
// while requests of the first are still in flight.
func TestDrainGivesAddressesBack(t *testing.T) {
	old, err := serveOn(t, nil, "tcp://"+storetest.FreeAddr(t), "ipc://"+filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	p := lookuptest.DialPeer(t, old.Addrs()[0])
	_, err = p.Write([]byte("\x00\x04pi"))
	require.NoError(t, err)
	lookuptest.Eventually(t, "begun", func() bool { return old.conns.countBusy() == 1 })
	idle := lookuptest.DialPeer(t, old.Addrs()[0])
	require.Equal(t, [][]byte{{1}, {}}, idle.Ask(t, []byte("ping"), nil))
	down := make(chan error, 1)
	go func() { down <- old.Shutdown(context.Background()) }()
	idle.ClosedWithin(t)
	require.EqualValues(t, 1, old.peers.closed[closedDraining].Load(), "idle connections go at once")

	server, err := serveOn(t, nil, old.Addrs()...)
	require.NoError(t, err)
	for _, addr := range server.Addrs() {
		pings(t, addr)
	}
	_, err = p.Write([]byte("ng"))
	require.NoError(t, err)
	require.Equal(t, []byte{1}, p.Next(t)[0])
	require.NoError(t, <-down)
	p.ClosedWithin(t)
	for _, addr := range server.Addrs() {
		pings(t, addr) // the file of the socket is the new server's
	}
}

// What has arrived when draining begins is answered, read or not.
func TestDrainAnswersWhatHasArrived(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	held, release := make(chan struct{}), make(chan struct{})
	server.on(t, func() error { close(held); <-release; return nil })
	<-held
	const requests = 3000 // more than a turn takes
	_, err := p.Write(bytes.Repeat(lookuptest.Encode([]byte("ping"), make([]byte, 50)), requests))
	require.NoError(t, err)
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(context.Background()) }()
	lookuptest.Eventually(t, "not listening", func() bool {
		select {
		case <-server.acceptor.closed:
			return true
		default:
			return false
		}
	})
	close(release)
	for range requests {
		require.Len(t, p.Next(t), 2)
	}
	_, err = p.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "closed in order")
	require.NoError(t, <-down)
	require.EqualValues(t, 1, server.peers.closed[closedDraining].Load())
}

// A connection that is on its way to its loop when draining begins is served.
func TestDrainOfNewcomers(t *testing.T) {
	server, err := serveOn(t, func(cfg *Config) { cfg.Loops = 1 }, "tcp://127.0.0.1:0")
	require.NoError(t, err)
	first := lookuptest.DialPeer(t, server.Addrs()[0])
	held, release := make(chan struct{}), make(chan struct{})
	server.on(t, func() error { close(held); <-release; return nil })
	<-held
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	_, err = p.Write(lookuptest.Encode([]byte("ping"), nil))
	require.NoError(t, err)
	lookuptest.Eventually(t, "accepted", func() bool { return server.connections.Load() == 2 })
	down := make(chan error, 1)
	go func() { down <- server.Shutdown(context.Background()) }()
	lookuptest.Eventually(t, "draining", server.isShuttingDown)
	close(release)
	require.Equal(t, [][]byte{{1}, {}}, p.Next(t))
	p.ClosedWithin(t)
	first.ClosedWithin(t)
	require.NoError(t, <-down)
}

// gated accepts when its gate is open.
type gated struct {
	*net.TCPListener
	gate chan struct{}
}

func (g gated) Accept() (net.Conn, error) {
	<-g.gate
	return g.TCPListener.Accept()
}

// Connections that wait in the kernel when draining begins are served: they may
// have sent requests.
func TestDrainOfThoseWhoWait(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	second := gated{ln.(*net.TCPListener), make(chan struct{})}
	door := startAcceptor(server, server.engine, []*listener{openListener(second)})
	peers := make([]*lookuptest.Peer, 20)
	for i := range peers {
		conn, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(lookuptest.Patience)))
		peers[i] = &lookuptest.Peer{Conn: conn}
		_, err = conn.Write(lookuptest.Encode([]byte("ping"), nil))
		require.NoError(t, err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	door.close(over)
	close(second.gate)
	for _, p := range peers {
		require.Equal(t, [][]byte{{1}, {}}, p.Next(t))
	}
	door.close(context.Background())
	_, err = net.Dial("tcp", ln.Addr().String())
	require.ErrorIs(t, err, unix.ECONNREFUSED)
}

// Shutdown reports requests that arrived and were cut off unread.
func TestDrainTellsOfUnread(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	p, idle := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
	require.Equal(t, [][]byte{{1}, {}}, idle.Ask(t, []byte("ping"), nil))
	require.NoError(t, idle.Close())
	require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	held, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	server.on(t, func() error { close(held); <-release; return nil })
	<-held
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.NoError(t, server.closeConns(ctx), "nothing is lost of an idle connection")
	_, err := p.Write(lookuptest.Encode([]byte("ping"), nil))
	require.NoError(t, err)
	lookuptest.Eventually(t, "it has arrived", func() bool { return server.conns.countUnread() == 1 })
	require.ErrorContains(t, server.closeConns(ctx), "1 connections cut off")
}

// An event loop that ends by itself stops the server.
func TestEngineThatEnds(t *testing.T) {
	t.Parallel() // it waits for a second or more
	server := startServer(t, blocks16, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	server.on(t, func() error { return gneterrors.ErrEngineShutdown })
	p.ClosedWithin(t)
	server.watch(2)
	<-server.Done()
	require.ErrorIs(t, server.Err(), ErrStopped)
	require.ErrorContains(t, server.Err(), "an event loop ended")
	_, err := net.Dial("tcp", server.Addrs()[0][len("tcp://"):])
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	require.ErrorContains(t, server.Shutdown(context.Background()), "an event loop ended", "which hides no cause")
	require.ErrorIs(t, server.Err(), ErrStopped)
}

// watch does not stop a server whose event loops run.
func TestEngineThatLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := unstarted(t)
		go server.watch(3)
		for range 10 {
			time.Sleep(2 * sweepEvery)
			server.sweeps.Add(1)
		}
		require.True(t, server.running())
		server.stop(nil)
	})
}

// short fails so often for want of descriptors, then accepts.
type short struct {
	listen.Listener
	failures int
}

func (s *short) Accept() (net.Conn, error) {
	if s.failures > 0 {
		s.failures--
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", unix.EMFILE)}
	}
	return s.Listener.Accept()
}

func TestAcceptBacksOff(t *testing.T) {
	var log logtest.Buffer
	server, err := serveOn(t, logTo(&log), "tcp://127.0.0.1:0")
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	begun := time.Now()
	second := startAcceptor(server, server.engine, []*listener{openListener(&short{ln.(listen.Listener), 5})})
	defer second.close(context.Background())
	pings(t, "tcp://"+ln.Addr().String())
	require.GreaterOrEqual(t, time.Since(begun), 155*time.Millisecond, "5, 10, 20, 40 and 80 ms")
	require.EqualValues(t, 5, server.Stat().AcceptErrors)
	logged := strings.Count(log.String(), "cannot accept connections")
	require.Positive(t, logged)
	require.LessOrEqual(t, logged, 1+int(time.Since(begun)/loglimit.Interval), log.String())
	require.Contains(t, log.String(), "too many open files")
}

// takeDescriptors takes all descriptors but so many, and returns what gives back so
// many of them.
func takeDescriptors(t *testing.T, but int) (giveBack func(n int)) {
	t.Helper()
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	low := limit
	low.Cur = min(low.Cur, 256)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	var taken []int
	giveBack = func(n int) {
		for range n {
			require.NoError(t, unix.Close(taken[0]))
			taken = taken[1:]
		}
	}
	t.Cleanup(func() {
		giveBack(len(taken))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	})
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			require.ErrorIs(t, err, unix.EMFILE)
			break
		}
		taken = append(taken, fd)
	}
	giveBack(but)
	return giveBack
}

// A connection takes two descriptors on its way to its loop. One that has got the
// last of them waits for the other, and is not turned away.
func TestLastDescriptor(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	giveBack := takeDescriptors(t, 2)
	p := lookuptest.DialPeer(t, server.Addrs()[0]) // takes one of them
	lookuptest.Eventually(t, "in want of another", func() bool { return server.Stat().AcceptErrors > 0 })
	giveBack(1)
	require.Equal(t, [][]byte{{1}, {}}, p.Ask(t, []byte("ping"), nil))
	require.EqualValues(t, 1, server.Stat().Connections)
}

// A connection that no loop takes does not count.
func TestConnectionNotTaken(t *testing.T) {
	var log logtest.Buffer
	server, err := serveOn(t, logTo(&log), "tcp://127.0.0.1:0")
	require.NoError(t, err)
	conn, err := net.Dial("tcp", server.Addrs()[0][len("tcp://"):])
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	lookuptest.Eventually(t, "it came and went", func() bool { return server.peers.closed[closedByPeer].Load() == 1 })
	server.acceptor.admit(openListener(nil), conn)
	lookuptest.Eventually(t, "counted", func() bool { return server.Stat().AcceptErrors == 1 })
	require.Zero(t, server.connections.Load())
	lookuptest.Eventually(t, "told", func() bool { return strings.Contains(log.String(), "cannot serve a connection") })
}

func TestZonesAreForgotten(t *testing.T) {
	conn := &zoned{local: net.TCPAddr{Zone: "eth0"}, remote: net.TCPAddr{Zone: "eth0"}}
	clearZones(conn)
	require.Empty(t, conn.local.Zone+conn.remote.Zone)
}

type zoned struct {
	net.Conn
	local, remote net.TCPAddr
}

func (z *zoned) LocalAddr() net.Addr  { return &z.local }
func (z *zoned) RemoteAddr() net.Addr { return &z.remote }
