package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server/internal/listen"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

// blocks16 is a service of one full-attention group of 16 tokens on one rank.
var blocks16 = lookup.ServiceConfig{Pool: lookuptest.Blocks16}

// patient is a configuration in which no call runs out of time.
var patient = lookup.RemoteConfig{Timeout: lookuptest.Patience, WriteTimeout: lookuptest.Patience}

func startServer(t testing.TB, cfg lookup.ServiceConfig, limits Limits) *Server {
	t.Helper()
	return startLogging(t, cfg, limits, slog.New(slog.DiscardHandler))
}

func startLogging(t testing.TB, cfg lookup.ServiceConfig, limits Limits, logger *slog.Logger) *Server {
	t.Helper()
	service, err := lookup.NewService(cfg)
	require.NoError(t, err)
	server, err := New(service, Config{
		Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}, Loops: 2, Limits: limits, Logger: logger,
	})
	require.NoError(t, err)
	startTest(t, server)
	return server
}

// isShuttingDown reports whether Shutdown was called.
func (s *Server) isShuttingDown() bool { return s.phase.reached(phaseShutdown) }

// startTest starts a server that ends with the test.
func startTest(t testing.TB, server *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lookuptest.Patience)
	defer cancel()
	require.NoError(t, server.Start(ctx))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
}

func startRemote(t testing.TB, store backend.Backend, cfg lookup.RemoteConfig, limits Limits) *Server {
	t.Helper()
	return startServer(t, lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: cfg}, limits)
}

// dialTest connects a client that ends with the test.
func dialTest(t testing.TB, s *Server, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.Dial(context.Background(), s.Addrs()[0], append(opts, client.WithTimeout(lookuptest.Patience))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// pingClient makes a round trip.
func pingClient(t testing.TB, c *client.Client) {
	t.Helper()
	_, err := c.Ping(context.Background())
	require.NoError(t, err)
}

func statOf(t testing.TB, c *client.Client) (st api.Stat) {
	t.Helper()
	st, err := c.Stat(context.Background())
	require.NoError(t, err)
	return st
}

// reset closes the connection of a peer that takes no more replies.
func reset(t testing.TB, p *lookuptest.Peer) {
	t.Helper()
	require.NoError(t, p.Conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, p.Close())
}

// heldBytes returns the bytes that connections hold.
func (s *Server) heldBytes() (sum int64) {
	for _, m := range s.loops.metrics() {
		sum += m.held.Load()
	}
	return sum
}

// openListener returns the state of a listener whose peers may do everything.
func openListener(ln listen.Listener) *listener {
	l := &listener{Socket: &listen.Socket{Listener: ln, Address: "tcp://second", Local: true}}
	l.setSettings(Settings{})
	return l
}

// openSession returns a session whose peer may do everything. Its event loop does not run.
func openSession(server *Server, conn replyWriter) *session {
	l := openListener(nil)
	loop := server.loops.of(nil)
	if loop == nil {
		loop = server.newEventLoop(-1)
		server.loops.add(nil, loop)
	}
	return sessionOf(server, loop, conn, l)
}

// sessionOf returns a session of a loop.
func sessionOf(server *Server, loop *eventLoop, conn replyWriter, l *listener) *session {
	return newSession(server.shared, newConn(loop, testConn{conn}), &pendingConn{listener: l, settings: l.settings.Load()})
}

// testLoop stands for a loop of gnet that does not run.
type testLoop struct {
	gnet.EventLoop
	_ int // so that each has an address of its own
}

// replyWriter is what tests have of a connection.
type replyWriter interface {
	Write(b []byte) (int, error)
	OutboundBuffered() int
}

// testConn is a connection without a socket.
type testConn struct{ replyWriter }

func (testConn) Fd() int                       { return -1 }
func (testConn) Wake(gnet.AsyncCallback) error { return nil }

func (c testConn) Close() error {
	if of, can := c.replyWriter.(io.Closer); can {
		return of.Close()
	}
	return nil
}
