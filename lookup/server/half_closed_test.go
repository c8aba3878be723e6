package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/netproto"
)

// finders are ways to connect, and to send a FIN on that connection.
var finders = map[string]struct {
	dial func(t testing.TB, s *Server) *lookuptest.Peer
	fin  func(p *lookuptest.Peer) error
}{
	"tcp": {
		func(t testing.TB, s *Server) *lookuptest.Peer { return lookuptest.DialPeer(t, s.Addrs()[0]) },
		func(p *lookuptest.Peer) error { return p.Conn.(*net.TCPConn).CloseWrite() },
	},
	"unix": {
		func(t testing.TB, s *Server) *lookuptest.Peer { return lookuptest.DialPeer(t, s.Addrs()[1]) },
		func(p *lookuptest.Peer) error { return p.Conn.(*net.UnixConn).CloseWrite() },
	},
	"tls": {dialSecure, func(p *lookuptest.Peer) error { return p.Conn.(*tls.Conn).CloseWrite() }},
	"tls without close_notify": {
		dialSecure, func(p *lookuptest.Peer) error { return p.Conn.(*tls.Conn).NetConn().(*net.TCPConn).CloseWrite() },
	},
}

func dialSecure(t testing.TB, s *Server) *lookuptest.Peer {
	tcp := lookuptest.DialPeer(t, "tcp"+s.Addrs()[2][len("tls"):])
	return &lookuptest.Peer{Conn: tls.Client(tcp.Conn, clientTLS())}
}

// startEverywhere starts a server that can be reached in all ways of finders.
func startEverywhere(t testing.TB, cfg lookup.ServiceConfig) *Server {
	t.Helper()
	service, err := lookup.NewService(cfg)
	require.NoError(t, err)
	server, err := New(service, Config{Loops: 2, Listeners: []Listener{
		{Address: "tcp://127.0.0.1:0"}, {Address: "ipc://" + t.TempDir() + "/s"},
		{Address: "tls://127.0.0.1:0", Settings: Settings{TLS: serverTLS, Rules: rulesOf(access.All)}},
	}})
	require.NoError(t, err)
	startTest(t, server)
	return server
}

// numHalfClosed returns the number of half-closed connections.
func (s *Server) numHalfClosed() (n int) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for c := range s.conns.all {
		if _, is := c.wire.(*halfClosed); is {
			n++
		}
	}
	return n
}

// requireEnd requires that the server sends nothing more, and ends the connection.
func requireEnd(t testing.TB, p *lookuptest.Peer) {
	t.Helper()
	rest, err := io.ReadAll(p)
	require.NoError(t, err)
	require.Empty(t, append(p.In, rest...))
}

// A peer that sends a FIN after its requests gets all replies: those of jobs in flight, and of requests that were kept.
func TestFINAfterJobs(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	for name, f := range finders {
		t.Run(name, func(t *testing.T) {
			store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
			store.Holding(g, "exists", "")
			server := startEverywhere(t, lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
			p := f.dial(t, server)
			const lookups = 20
			p.Send(t, bytes.Repeat(lookupOf("", keys), lookups), storeOf("", netproto.TagStore, keys),
				lookupOf("", keys), plainOf("", netproto.TagPing), lookupOf("cut", keys)[:40])
			lookuptest.Eventually(t, "they are in flight", func() bool { return server.Stat().InFlight == lookups+1 })
			require.NoError(t, f.fin(p))
			lookuptest.Eventually(t, "the FIN is seen", func() bool { return server.numHalfClosed() == 1 })
			require.EqualValues(t, 1, server.connections.Load())
			require.Greater(t, server.heldBytes(), int64(lookups*256))
			require.Zero(t, server.Stat().AfterFIN)
			close(g.Open)
			for range lookups {
				p.Expect(t, hitText(8))
			}
			p.Expect(t, "01", hitText(8), "01")
			requireEnd(t, p)
			_ = p.Close() // it cannot send a close_notify after its FIN
			require.EqualValues(t, lookups+3, server.Stat().AfterFIN)
			lookuptest.Eventually(t, "it is gone", func() bool {
				return server.connections.Load() == 0 && server.heldBytes() == 0 && server.Stat().Closed["peer"] == 1
			})
		})
	}
}

// A FIN that comes with the request, whatever answers it.
func TestFINWithRequest(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	for name, f := range finders {
		t.Run(name, func(t *testing.T) {
			server := startEverywhere(t, blocks16)
			for range 5 {
				for _, request := range [][]byte{
					rawExplain(keys, 32), rawLookup(keys, 32), plainOf("", netproto.TagStat), bytes.Repeat(rawLookup(keys, 32), 1000),
				} {
					p := f.dial(t, server)
					p.Send(t, request)
					require.NoError(t, f.fin(p))
					for range len(request)/(1000*len(rawLookup(keys, 32)))*999 + 1 {
						p.Next(t)
					}
					requireEnd(t, p)
					_ = p.Close() // it cannot send a close_notify after its FIN
				}
			}
			lookuptest.Eventually(t, "all are gone", func() bool { return server.connections.Load() == 0 && server.heldBytes() == 0 })
		})
	}
}

// After a FIN a reset, or the close of a unix socket, cancels what is in flight, as it does without one.
func TestResetAfterFIN(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	for _, name := range []string{"tcp", "unix", "tls"} {
		t.Run(name, func(t *testing.T) {
			f := finders[name]
			store := lookuptest.Filled(t, keys)
			asked, cancelled := make(chan struct{}, 1), make(chan struct{}, 1)
			store.Before = func(ctx context.Context, _ string, _ []string) error {
				asked <- struct{}{}
				<-ctx.Done()
				cancelled <- struct{}{}
				return ctx.Err()
			}
			never := patient
			never.Timeout, never.WriteTimeout = 10*lookuptest.Patience, 10*lookuptest.Patience
			server := startEverywhere(t, lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: never})
			p := f.dial(t, server)
			p.Send(t, lookupOf("", keys))
			<-asked
			require.NoError(t, f.fin(p))
			lookuptest.Eventually(t, "the FIN is seen", func() bool { return server.numHalfClosed() == 1 })
			conn := p.Conn
			if secure, is := conn.(*tls.Conn); is {
				conn = secure.NetConn()
			}
			if tcp, is := conn.(*net.TCPConn); is {
				require.NoError(t, tcp.SetLinger(0))
			}
			require.NoError(t, conn.Close())
			select {
			case <-cancelled:
			case <-time.After(lookuptest.Patience):
				t.Fatal("it is not cancelled")
			}
			lookuptest.Eventually(t, "it is gone", func() bool { return server.connections.Load() == 0 && server.heldBytes() == 0 })
			require.Zero(t, server.Stat().AfterFIN)
		})
	}
}

// A half-closed connection whose peer reads nothing ends when the time of the jobs is over.
func TestUnreadAfterFIN(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
	store.Holding(g, "exists", "")
	cfg := lookup.RemoteConfig{Timeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
	server := startServer(t, lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: cfg}, Limits{MaxUnsent: 64 << 20, MaxMemory: 1 << 30})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, lookupOf("", keys), bytes.Repeat(ping(netproto.MaxPing), 200)) // more than the kernel keeps
	lookuptest.Eventually(t, "they wait", func() bool { return server.Stat().InFlight == 201 })
	require.NoError(t, p.Conn.(*net.TCPConn).CloseWrite())
	lookuptest.Eventually(t, "the FIN is seen", func() bool { return server.numHalfClosed() == 1 })
	close(g.Open)
	lookuptest.Eventually(t, "it is gone", func() bool { return server.connections.Load() == 0 && server.heldBytes() == 0 })
}

// A server that stops waits for half-closed connections, and ends them when its time is over.
func TestStopAfterFIN(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	for name, answered := range map[string]bool{"answered": true, "cut off": false} {
		t.Run(name, func(t *testing.T) {
			store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
			store.Holding(g, "exists", "")
			server := startRemote(t, store, patient, Limits{})
			p := lookuptest.DialPeer(t, server.Addrs()[0])
			p.Send(t, lookupOf("", keys))
			lookuptest.Eventually(t, "it is asked", func() bool { return g.Held.Load() == 1 })
			require.NoError(t, p.Conn.(*net.TCPConn).CloseWrite())
			lookuptest.Eventually(t, "the FIN is seen", func() bool { return server.numHalfClosed() == 1 })
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			down := make(chan error, 1)
			go func() { down <- server.Shutdown(ctx) }()
			lookuptest.Eventually(t, "draining", server.isShuttingDown)
			if answered {
				close(g.Open)
				p.Expect(t, hitText(8))
				require.NoError(t, <-down)
			} else {
				cancel()
				require.ErrorContains(t, <-down, "1 connections cut off")
			}
			requireEnd(t, p)
			require.Zero(t, server.connections.Load())
		})
	}
}
