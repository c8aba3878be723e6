package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// startFilled starts a server that has the keys.
func startFilled(t *testing.T, keys []byte) *Server {
	server := startServer(t, blocks16, Limits{})
	require.NoError(t, dialTest(t, server).Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	return server
}

// TestPanicOfAWorker has a worker panic. The request is refused, and the connection and the workers serve on.
func TestPanicOfAWorker(t *testing.T) {
	op := &operations[netproto.TagExplain]
	run := op.run
	t.Cleanup(func() { op.run = run }) // once the server is closed
	op.run = func(context.Context, *job) error { panic("odd request") }
	keys := lookuptest.Chain("a", 4, 32)
	server := startFilled(t, keys)
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	for range 100 { // more than there are workers
		p.Send(t, append(netproto.AppendLookupFrom(nil, nil, netproto.TagExplain, 64, 0, 32, len(keys)), keys...))
		_, _, frames := p.Reply(t)
		require.Contains(t, fmt.Sprint(frames), "a fault of hitline, please report it: odd request")
	}
	p.Send(t, lookupOf("a", keys))
	_, body, _ := p.Reply(t)
	require.Equal(t, hitText(4), body)
}

// TestPanicOfAnEventLoop has an event loop panic, when a request has arrived and when a worker has run it. The
// connection is closed, and the loop serves the others.
func TestPanicOfAnEventLoop(t *testing.T) {
	op := &operations[netproto.TagExplain]
	before := *op
	for name, run := range map[string]func(context.Context, *job) error{"as the request arrives": nil, "after a worker": before.run} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { *op = before }) // once the server is closed
			keys := lookuptest.Chain("a", 4, 32)
			op.run, op.apply = run, func(*session, *job) error { panic("odd request") }
			server := startFilled(t, keys)
			other := lookuptest.DialPeer(t, server.Addrs()[0])
			for range 20 { // more than there are loops
				p := lookuptest.DialPeer(t, server.Addrs()[0])
				p.Send(t, append(netproto.AppendLookupFrom(nil, nil, netproto.TagExplain, 64, 0, 32, len(keys)), keys...))
				_, err := io.ReadAll(p)
				require.NoError(t, err)
				other.Send(t, lookupOf("a", keys))
				_, body, _ := other.Reply(t)
				require.Equal(t, hitText(4), body)
			}
			require.EqualValues(t, 20, server.peers.closed[closedFault].Load())
			lookuptest.Eventually(t, "they are gone", func() bool { return server.Stat().Connections <= 2 })
			require.Zero(t, server.Stat().InFlight)
		})
	}
}

// TestPanicLeavesNoPool has a pool request end by a panic when workers have found the pool: it has no connection then.
func TestPanicLeavesNoPool(t *testing.T) {
	op := &operations[netproto.TagPool]
	before := *op
	t.Cleanup(func() { *op = before })
	op.apply = func(*session, *job) error { panic("odd pool") }
	server := startPools(t, nil, Config{AcceptPool: memoryService})
	for range 3 {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Send(t, netproto.AppendRequest(nil, nil, netproto.TagPool, []byte(`{"name":"a","model_name":"m"}`)))
		_, err := io.ReadAll(p)
		require.NoError(t, err)
	}
	lookuptest.Eventually(t, "they are gone", func() bool { return server.Stat().Connections == 0 })
	server.pools.mu.Lock()
	defer server.pools.mu.Unlock()
	for _, p := range server.pools.visibleTo(nil) {
		require.Zero(t, p.connections)
	}
}

// panicHandler is a slog.Handler that panics at one message.
type panicHandler struct {
	slog.Handler
	at string
}

func (h panicHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.at {
		panic("odd log")
	}
	return nil
}

func (panicHandler) Enabled(context.Context, slog.Level) bool { return true }

// TestPanicOfOpening has the loop panic when a connection is opened. It is closed, and others are served.
func TestPanicOfOpening(t *testing.T) {
	handler := &panicHandler{slog.DiscardHandler, "connection opened"}
	server := startLogging(t, blocks16, Limits{}, slog.New(handler))
	for range 20 {
		_, err := io.ReadAll(lookuptest.DialPeer(t, server.Addrs()[0]))
		require.NoError(t, err)
	}
	lookuptest.Eventually(t, "they are gone", func() bool { return server.Stat().Connections == 0 })
}

// TestPanicOfAHandshake has TLS handshakes panic, more than may compute at a time. Others are served.
func TestPanicOfAHandshake(t *testing.T) {
	t.Parallel() // it waits for a second or more
	cfg := serverTLS.Clone()
	cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName == "odd" {
			panic("odd name")
		}
		return &serverTLS.Certificates[0], nil
	}
	cfg.Certificates = nil
	server, log := startTLSServer(t, Limits{}, Settings{TLS: cfg})
	odd := clientTLS()
	odd.ServerName = "odd"
	for range 40 {
		_ = refusedTLSAnyhow(t, server, odd)
	}
	pingClient(t, dialTest(t, server, client.WithTLS(clientTLS())))
	require.EqualValues(t, 40, server.peers.closed[closedFault].Load())
	lookuptest.Eventually(t, "they are gone", func() bool { return server.Stat().Connections == 1 })
	require.Contains(t, log.String(), "a fault of hitline, please report it: odd name, at ")
}

// refusedTLSAnyhow is refusedTLS for a server that may just end the stream.
func refusedTLSAnyhow(t testing.TB, s *Server, cfg *tls.Config) error {
	conn := tls.Client(lookuptest.DialPeer(t, hostOf(s)).Conn, cfg)
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	return err
}

// oddConn is a connection whose peer has no address.
type oddConn struct{ net.Conn }

func (oddConn) RemoteAddr() net.Addr { panic("odd address") }

// TestPanicOfAdmitting has the acceptor panic. The connection is closed, and not counted any more.
func TestPanicOfAdmitting(t *testing.T) {
	server := startServer(t, blocks16, Limits{})
	ours, theirs := net.Pipe()
	server.acceptor.admit(server.acceptor.listeners[0], oddConn{theirs})
	_, err := ours.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, server.Stat().Connections)
	require.EqualValues(t, 1, server.Stat().AcceptErrors)
}
