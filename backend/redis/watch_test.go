package redis

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/internal/storetest"
)

// useConns makes calls at the same time, so that several connections are idle afterwards.
func useConns(t *testing.T, b *Backend) {
	t.Helper()
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 5 {
				_, err := b.Exists(testContext(t), backend.KeyList(blocks("m", 2000)), false)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}

// A real server that cuts idle connections: calls go on, and no generation begins.
func TestIdleConnectionsAreCut(t *testing.T) {
	start := map[string]func(t *testing.T) (url string){
		"redis": func(t *testing.T) string { return "redis://" + storetest.StartRedis(t, "--timeout", "1").Addr },
		"valkey": func(t *testing.T) string {
			return "redis://" + storetest.StartServer(t, storetest.ValkeyBinary(t), "--timeout", "1").Addr
		},
		"TLS": func(t *testing.T) string {
			s, cert, _ := storetest.StartTLSRedis(t, "--timeout", "1", "--tls-auth-clients", "no")
			return "rediss://" + s.Addr + "?ca=" + cert
		},
	}
	for name, start := range start {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testBackend(t, Config{URL: start(t)})
			useConns(t, b)
			before := b.Generation()
			for range 2 {
				eventuallyEnded(t, b)
				require.NoError(t, b.Failure())
				useConns(t, b)
				require.Equal(t, before, b.Generation())
			}
		})
	}
}

// eventuallyEnded waits until connections that were open have ended.
func eventuallyEnded(t *testing.T, b *Backend) {
	t.Helper()
	p := &b.processes
	p.mu.Lock()
	var open []*checkedConn
	for w := range p.conns {
		open = append(open, w)
	}
	p.mu.Unlock()
	require.NotEmpty(t, open)
	for _, w := range open {
		storetest.Eventually(t, "it is cut", w.ended)
	}
}

// The end of a server is noticed when nobody asks, and so is the next one, which is another process.
func TestServerIsReplaced(t *testing.T) {
	forEachServer(t, func(t *testing.T, binary string) {
		s := storetest.StartServer(t, binary)
		b := testBackend(t, Config{URL: "redis://" + s.Addr})
		useConns(t, b)
		before, began := b.Generation(), time.Now()
		s.Stop()
		storetest.Eventually(t, "it is noticed", func() bool { return b.Failure() != nil })
		t.Logf("noticed within %v", time.Since(began).Round(time.Millisecond))
		require.Greater(t, b.Generation(), before)
		require.ErrorIs(t, b.Failure(), backend.ErrUnavailable)
		require.ErrorContains(t, b.Failure(), "connection refused")
		s.Start(t)
		storetest.Eventually(t, "the next one is", func() bool { return b.Failure() == nil })
	})
}

// A server that was never there is told, too.
func TestNoServerYet(t *testing.T) {
	b := testBackend(t, Config{URL: "redis://" + storetest.FreeAddr(t)})
	require.NoError(t, b.Failure())
	_, err := b.Exists(testContext(t), backend.KeyList(blocks("m", 1)), false)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	storetest.Eventually(t, "it is noticed", func() bool { return b.Failure() != nil })
}

// watched is a server whose connections and run_id a test changes.
type watched struct {
	addr  string
	id    atomic.Pointer[string] // nil: it does not tell
	mu    sync.Mutex
	conns []net.Conn
	infos atomic.Int64
	drops atomic.Int64 // how often it closes a connection in place of an answer to EXISTS
}

func startWatched(t *testing.T, id string) *watched {
	s := &watched{}
	s.id.Store(&id)
	s.addr = listen(t, func(c net.Conn) {
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		serveCommands(c, func(command string, args ...string) (answer string, ok bool) {
			switch command {
			case "ping":
				return "+PONG\r\n", true
			case "info":
				id := s.id.Load()
				switch {
				case args[0] == "commandstats":
					return "$0\r\n\r\n", true
				case id == nil:
					s.infos.Add(1)
					return "-NOPERM this user has no permissions to run the 'info' command\r\n", true
				}
				s.infos.Add(1)
				text := "# Server\r\nrun_id:" + *id + "\r\n"
				return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text), true
			case "exists":
				return ":1\r\n", s.drops.Add(-1) < 0
			}
			return noCommand, true
		})
	})
	return s
}

// cut closes all connections.
func (s *watched) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

// A generation begins when keys may have gone, and at no other time.
func TestGeneration(t *testing.T) {
	other := "2"
	for name, tc := range map[string]struct {
		do     func(s *watched)
		fails  bool // the next call
		begins bool
	}{
		"idle connections are cut":  {do: (*watched).cut},
		"by another process":        {do: func(s *watched) { s.id.Store(&other); s.cut() }, begins: true},
		"by one that does not tell": {do: func(s *watched) { s.id.Store(nil); s.cut() }, begins: true},
		"with a call on one":        {do: func(s *watched) { s.drops.Store(10) }, begins: true, fails: true},
		"or before the call":        {do: func(s *watched) { s.drops.Store(1) }},
		"by another process, then":  {do: func(s *watched) { s.id.Store(&other); s.drops.Store(1) }, begins: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := startWatched(t, "1")
			b := testBackend(t, Config{URL: "redis://" + s.addr})
			exists := func() error { _, err := b.Exists(testContext(t), backend.KeyList(blocks("m", 1)), false); return err }
			require.NoError(t, exists())
			before := b.Generation()
			tc.do(s)
			require.Equal(t, tc.fails, exists() != nil)
			require.Equal(t, tc.begins, b.Generation() > before)
			require.LessOrEqual(t, s.infos.Load(), int64(4))
		})
	}
}

// A server that somebody flushes begins a generation, if keys are asked for, and so does each flush after it; one of another
// database does not.
func TestFlushes(t *testing.T) {
	forEachServer(t, func(t *testing.T, binary string) {
		s := storetest.StartServer(t, binary)
		b := testBackend(t, Config{URL: "redis://" + s.Addr})
		other := testBackend(t, Config{URL: "redis://" + s.Addr + "/1"})
		seen := func(want contents) {
			storetest.Eventually(t, fmt.Sprint(want), func() bool {
				_, err := b.Exists(testContext(t), backend.KeyList(blocks("m", 1)), false)
				require.NoError(t, err)
				b.processes.mu.Lock()
				defer b.processes.mu.Unlock()
				return b.processes.contents[s.Addr] == want
			})
		}
		for i, flush := range []string{"FLUSHALL", "FLUSHDB"} {
			require.NoError(t, b.Store(testContext(t), blocks("m", 3)))
			seen(contents{2 * int64(i), 3})
			before := b.Generation()
			require.NoError(t, other.client.Do(testContext(t), "FLUSHDB").Err())
			seen(contents{2*int64(i) + 1, 3})
			require.Equal(t, before, b.Generation(), "of another database")
			require.NoError(t, b.client.Do(testContext(t), flush, "ASYNC").Err())
			seen(contents{2*int64(i) + 2, 0})
			require.Equal(t, before+1, b.Generation(), flush)
		}
		before := b.Generation()
		require.NoError(t, b.client.Do(testContext(t), "CONFIG", "RESETSTAT").Err())
		seen(contents{})
		require.Equal(t, before, b.Generation())
	})
}

// A server that does not tell its ID is asked once.
func TestServerWithoutID(t *testing.T) {
	s := startWatched(t, "1")
	s.id.Store(nil)
	b := testBackend(t, Config{URL: "redis://" + s.addr})
	for range 3 {
		_, err := b.Exists(testContext(t), backend.KeyList(blocks("m", 1)), false)
		require.NoError(t, err)
		s.cut()
	}
	require.EqualValues(t, 1, s.infos.Load())
}

// A cluster whose slots get other primaries begins a generation; another order of its ranges does not.
func TestPrimaries(t *testing.T) {
	var p processes
	p.recordPrimaries([]string{"0-1:a", "2-3:b"})
	p.recordPrimaries([]string{"2-3:b", "0-1:a"})
	require.Zero(t, p.generation.Load())
	p.recordPrimaries([]string{"2-3:b", "0-1:c"})
	require.EqualValues(t, 1, p.generation.Load())
	cluster := sharedCluster(t)
	b := testBackend(t, Config{URL: "redis-cluster://" + cluster.Nodes[0].Addr})
	agree := func() bool {
		before := b.Generation()
		for range 5 {
			_, err := b.client.ClusterSlots(context.Background()).Result() // of any node
			require.NoError(t, err)
			_, err = b.Exists(testContext(t), backend.KeyList(blocks("m", 500)), false)
			require.NoError(t, err)
		}
		return b.Generation() == before
	}
	for end := time.Now().Add(2 * time.Minute); !agree(); time.Sleep(50 * time.Millisecond) { // other tests have killed nodes
		require.True(t, time.Now().Before(end), "nodes do not agree")
	}
	b.processes.mu.Lock()
	defer b.processes.mu.Unlock()
	require.Equal(t, len(cluster.Nodes), 1+strings.Count(b.processes.primaries, " "))
}
