package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// instanceLog records the instances that a client was told.
type instanceLog struct {
	mu  sync.Mutex
	all []api.Instance
}

func (m *instanceLog) add(i api.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, i)
}

func (m *instanceLog) ids() (ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.all {
		ids = append(ids, i.ID)
	}
	return ids
}

// blockingCall is a call of a client that returns the server's answer.
type blockingCall func(ctx context.Context) error

// instanceClients are the kinds of clients: each has calls that may be its first.
var instanceClients = map[string]func(t *testing.T, addr string, hook Option) []blockingCall{
	"pooled": func(t *testing.T, addr string, hook Option) []blockingCall {
		return clientCalls(dialAs(t, addr, hook))
	},
	"one connection": func(t *testing.T, addr string, hook Option) []blockingCall {
		return clientCalls(dialAs(t, addr, hook, WithConnections(1)))
	},
	"pipelined": func(t *testing.T, addr string, hook Option) []blockingCall {
		return clientCalls(dialAs(t, addr, hook, WithPipeline()))
	},
	"with a pool": func(t *testing.T, addr string, hook Option) []blockingCall {
		return clientCalls(dialAs(t, addr, hook, WithPool("", lookuptest.Blocks16)))
	},
	"with a pool, pipelined": func(t *testing.T, addr string, hook Option) []blockingCall {
		return clientCalls(dialAs(t, addr, hook, WithPool("", lookuptest.Blocks16), WithPipeline()))
	},
	"failing open": func(t *testing.T, addr string, hook Option) []blockingCall {
		return clientCalls(dialAs(t, addr, hook, WithFailOpen()))
	},
	"async": func(t *testing.T, addr string, hook Option) []blockingCall {
		a, err := DialAsync(background, addr, hook, WithTimeout(lookuptest.Patience))
		require.NoError(t, err)
		t.Cleanup(func() { _ = a.Close() })
		var ids atomic.Int64
		return []blockingCall{
			func(context.Context) error {
				id := fmt.Sprint(ids.Add(1))
				for {
					if _, ready, err := a.Poll(id, 64, someHashes); ready {
						return err
					}
					time.Sleep(time.Millisecond)
				}
			},
			a.Reset,
		}
	},
}

var someHashes = coordinator.NewHashes(lookuptest.Chain("instance", 4, 32), 32)

func clientCalls(c *Client) []blockingCall {
	return []blockingCall{
		func(ctx context.Context) error { _, err := c.Lookup(ctx, 64, someHashes); return err },
		func(ctx context.Context) error {
			// The first is refused before it is sent.
			asks := []BatchLookup{{NumTokens: -1, Hashes: someHashes}, {NumTokens: 64, Hashes: someHashes}, {NumTokens: 64}}
			_ = c.Batch(ctx, asks)
			return errors.Join(asks[1].Err, asks[2].Err)
		},
		func(ctx context.Context) error { return c.Store(ctx, coordinator.GroupRank{}, someHashes) },
		func(ctx context.Context) error { _, err := c.Stat(ctx); return err },
		c.Ping,
	}
}

// serveAt serves at an address until the returned function is called.
func serveAt(t *testing.T, addr string) (s *server.Server, stop func()) {
	t.Helper()
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	s, err = server.New(service, server.Config{Listeners: []server.Listener{{Address: addr}}, Loops: 1, Version: "v"})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), lookuptest.Patience)
	defer cancel()
	require.NoError(t, s.Start(ctx))
	return s, sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = s.Shutdown(ctx)
	})
}

// Each client is told each instance at an address once, before an answer of it is returned,
// whichever request is the first.
func TestOnInstance(t *testing.T) {
	for name, dial := range instanceClients {
		for first := range 5 {
			t.Run(fmt.Sprint(name, first), func(t *testing.T) {
				s, stop := serveAt(t, "tcp://127.0.0.1:0")
				addr := s.Addrs()[0]
				var m instanceLog
				calls := dial(t, addr, WithOnInstance(m.add))
				first %= len(calls)
				var want []string
				for range 3 {
					want = append(want, s.Instance().ID)
					untilAnswered(t, calls[first])
					require.Equal(t, want, m.ids())
					var all sync.WaitGroup
					for range 4 { // on further connections
						for _, call := range calls {
							all.Go(func() { _ = call(background) })
						}
					}
					all.Wait()
					require.Equal(t, want, m.ids())
					require.Equal(t, s.Instance(), m.all[len(m.all)-1])
					stop()
					s, stop = serveAt(t, addr)
				}
				stop()
			})
		}
	}
}

// untilAnswered repeats a call while connections of the former server fail.
func untilAnswered(t *testing.T, call blockingCall) {
	t.Helper()
	for end := time.Now().Add(lookuptest.Patience); ; time.Sleep(time.Millisecond) {
		err := call(background)
		if err == nil {
			return
		}
		require.True(t, errors.Is(err, ErrConnect) || errors.Is(err, ErrNoAnswer), "%v", err)
		require.True(t, time.Now().Before(end), "%v", err)
	}
}

// While the function runs no answer is returned, on any connection, and no other call of it
// begins.
func TestOnInstanceHoldsAnswersBack(t *testing.T) {
	s := startServer(t, blocks16, server.Limits{})
	for _, opt := range []Option{WithConnections(4), WithPipeline()} {
		entered, leave := make(chan struct{}), make(chan struct{})
		var left atomic.Bool
		c := dialTest(t, s, opt, WithOnInstance(func(api.Instance) {
			close(entered) // a second call panics
			<-leave
			left.Store(true)
		}))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := c.Ping(background); err != nil || !left.Load() {
					t.Errorf("%v, before the function returned: %v", err, !left.Load())
				}
			})
		}
		<-entered
		time.Sleep(10 * time.Millisecond) // for the others to connect
		close(leave)
		all.Wait()
	}
}

// A panic of the function goes no further.
func TestOnInstancePanics(t *testing.T) {
	s := startServer(t, blocks16, server.Limits{})
	for _, opt := range []Option{WithConnections(1), WithPipeline()} {
		calls := 0
		c := dialTest(t, s, opt, WithOnInstance(func(api.Instance) { calls++; panic("hook") }))
		require.NoError(t, c.Ping(background))
		require.NoError(t, c.Ping(background))
		require.Equal(t, 1, calls)
	}
}

// Servers that name no instance are asked and answer as ever.
func TestOnInstanceOfOtherServers(t *testing.T) {
	for _, pong := range []string{"", "null", "[]", "{}", `{"instance":7}`, "no JSON"} {
		for _, opt := range []Option{WithConnections(1), WithPipeline()} {
			f := &fakeServer{answer: func(r *fakeRequest) {
				if r.tag == "ping" && pong != "" {
					r.conn.send(netproto.AppendDone(nil, r.envelope, netproto.AppendFrame(nil, []byte(pong), false)))
					return
				}
				r.reply()
			}}
			d := f.dialer()
			cfg := newConfig([]Option{opt, WithTimeout(lookuptest.Patience)})
			d.instances = newInstanceWatch(func(api.Instance) { t.Error("there is no instance") })
			c, err := dialClient(background, d, cfg)
			require.NoError(t, err)
			hit, err := c.Lookup(background, 64, someHashes)
			require.NoError(t, err)
			require.EqualValues(t, 64, hit.Tokens)
			require.NoError(t, c.Close())
			f.all.Wait()
		}
	}
}

// writesConn records each write. It is no socket for a client.
type writesConn struct {
	net.Conn
	writes *[][]byte
}

func (w writesConn) Write(p []byte) (int, error) {
	*w.writes = append(*w.writes, bytes.Clone(p))
	return w.Conn.Write(p)
}

// The ping goes with the first request in one write, and costs no round trip.
func TestOnInstanceTakesNoRoundTrip(t *testing.T) {
	s := startServer(t, blocks16, server.Limits{})
	for _, opt := range []Option{WithConnections(1), WithPipeline()} {
		var writes [][]byte
		c := dialTest(t, s, opt, WithOnInstance(func(api.Instance) {}),
			WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
				nc, err := new(net.Dialer).DialContext(ctx, network, address)
				return writesConn{nc, &writes}, err
			}))
		require.Empty(t, writes)
		_, err := c.Stat(background)
		require.NoError(t, err)
		require.Len(t, writes, 1)
		require.Contains(t, string(writes[0]), "ping")
		require.Contains(t, string(writes[0]), "stat")
		_, err = c.Stat(background)
		require.NoError(t, err)
		require.NotContains(t, string(writes[1]), "ping")
	}
}

// Instance asks for what the server says of itself, with and without a pipeline.
func TestInstance(t *testing.T) {
	for _, opt := range []Option{WithConnections(1), WithPipeline()} {
		s := startServer(t, blocks16, server.Limits{})
		c := dialTest(t, s, opt)
		got, err := c.Instance(background)
		require.NoError(t, err)
		require.Equal(t, s.Instance(), got)
		require.Equal(t, netproto.ProtocolVersion, got.Protocol)
		st := statOf(t, c)
		require.Equal(t, got.ID, st.Instance)
		require.Equal(t, got.StartTime, st.StartTime)
	}
	c := dialOver(t, func() net.Conn { nc, err := (&fakeServer{}).connect(); require.NoError(t, err); return nc }())
	_, err := c.Instance(background)
	require.ErrorIs(t, err, ErrReply)
}

// A reset of a rank over the wire.
func TestResetRank(t *testing.T) {
	s := startServer(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16, TPSize: 2, NumKVHead: 2}}, server.Limits{})
	for _, opt := range []Option{WithConnections(1), WithPipeline()} {
		c := dialTest(t, s, opt)
		for tp := range uint16(2) {
			require.NoError(t, c.Store(background, coordinator.GroupRank{TPRank: tp}, someHashes))
		}
		tokens := func() int64 {
			hit, err := c.Lookup(background, 64, someHashes)
			require.NoError(t, err)
			return hit.Tokens
		}
		require.EqualValues(t, 64, tokens())
		require.NoError(t, c.ResetRank(background, coordinator.GroupRank{Group: coordinator.AnyRank, TPRank: 1, PPRank: coordinator.AnyRank}))
		require.Zero(t, tokens())
		require.NoError(t, c.Store(background, coordinator.GroupRank{TPRank: 1}, someHashes))
		require.EqualValues(t, 64, tokens())
		require.ErrorIs(t, c.ResetRank(background, coordinator.GroupRank{TPRank: 2}), ErrRefused)
	}
}
