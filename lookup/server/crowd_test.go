package server

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// crowd is many plain connections to one server.
type crowd struct {
	mu    sync.Mutex
	conns []net.Conn
}

// dialCrowd connects n times from several goroutines and lets each connection do
// something.
func dialCrowd(t testing.TB, addr string, n int, do func(conn net.Conn) error) *crowd {
	t.Helper()
	c := new(crowd)
	t.Cleanup(c.close)
	var group errgroup.Group
	group.SetLimit(8)
	for range n {
		group.Go(func() error {
			conn, err := net.Dial("tcp", strings.TrimPrefix(addr, "tcp://"))
			if err != nil {
				return err
			}
			c.mu.Lock()
			c.conns = append(c.conns, conn)
			c.mu.Unlock()
			if err := conn.SetDeadline(time.Now().Add(10 * lookuptest.Patience)); err != nil {
				return err
			}
			return do(conn)
		})
	}
	require.NoError(t, group.Wait())
	return c
}

func (c *crowd) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // leaves nothing behind that would take up its port
		}
		_ = conn.Close()
	}
	c.conns = nil
}

var pingBytes, pongBytes = lookuptest.Encode([]byte("ping"), nil), lookuptest.Encode([]byte{1}, nil)

func pingPong(conn net.Conn) error {
	if _, err := conn.Write(pingBytes); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len(pongBytes)))
	return err
}

// dialChild connects a client that ends with the test.
func dialChild(t testing.TB, server *child) *client.Client {
	t.Helper()
	c, err := client.Dial(context.Background(), server.addr, client.WithTimeout(lookuptest.Patience))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// requireFiles skips the test unless the process may open a number of files.
func requireFiles(t testing.TB, files uint64) {
	t.Helper()
	if limit := OpenFileLimit(); limit < files {
		t.Skipf("%d files may be open, %d would be needed", limit, files)
	}
}

// measurable skips the test if memory is not that of a release build.
func measurable(t testing.TB) {
	t.Helper()
	if testing.Short() || bufpool.Debug || runtime.GOOS != "linux" {
		t.Skip("needs time, and a build as users have it")
	}
}

const mib = 1 << 20

// Ten thousand idle connections take at most 64 MiB.
func TestTenThousandConnections(t *testing.T) {
	measurable(t)
	requireFiles(t, 13_500)
	const connections = 10_000
	server := startChild(t, childConfig{Listen: []string{"tcp://127.0.0.1:0"}, Limits: Limits{MaxConnections: connections + 10}})
	c := dialChild(t, server)
	pingClient(t, c)
	before := server.memory(t, "VmRSS")
	crowd := dialCrowd(t, server.addr, connections, pingPong)
	require.EqualValues(t, connections+1, statOf(t, c).Connections)
	grown := server.memory(t, "VmHWM") - before
	t.Logf("%d connections take %.1f MiB, %d bytes each", connections, float64(grown)/mib, grown/connections)
	require.LessOrEqual(t, grown, 64*mib)
	crowd.close()
	lookuptest.Eventually(t, "all gone", func() bool { return statOf(t, c).Connections == 1 })
	server.ends(t)
}

// A storm of connections that come and go leaves others served.
func TestConnectionStorm(t *testing.T) {
	storm, ipc := 10_000, "ipc://"+t.TempDir()+"/s"
	if testing.Short() || bufpool.Debug {
		storm = 1000
	}
	server, err := serveOn(t, nil, "tcp://127.0.0.1:0", ipc)
	require.NoError(t, err)
	answers, stop := lookUpMeanwhile(t, server.Addrs()[0])
	end := time.Now().Add(lookuptest.Patience)
	var group errgroup.Group
	for worker := range 8 {
		group.Go(func() error {
			for i := 0; i < storm/8 || answers.Load() == 0 && time.Now().Before(end); i++ {
				network, target, _ := api.SplitAddress(server.Addrs()[worker%2])
				conn, err := net.Dial(network, target)
				if errors.Is(err, unix.EAGAIN) { // more wait than the kernel keeps
					time.Sleep(time.Millisecond)
					continue
				}
				if err != nil {
					return err
				}
				if i%4 == 0 {
					_, _ = conn.Write(pingBytes[:1+i%len(pingBytes)])
				}
				if tcp, ok := conn.(*net.TCPConn); ok && i%8 != 0 {
					_ = tcp.SetLinger(0)
				}
				if err := conn.Close(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	during := answers.Load()
	stop()
	require.Positive(t, during, "lookups were answered meanwhile")
	lookuptest.Eventually(t, "all gone", func() bool { return server.conns.number() == 0 && server.connections.Load() == 0 })
	pings(t, server.Addrs()[0])
	pings(t, ipc)
	require.Zero(t, server.Stat().AcceptErrors)
}

// lookUpMeanwhile looks up over a connection of its own until it is stopped, and
// fails the test if an answer is wrong or late.
func lookUpMeanwhile(t testing.TB, addr string) (answers *atomic.Int64, stop func()) {
	t.Helper()
	c, err := client.Dial(context.Background(), addr, client.WithTimeout(lookuptest.Patience))
	require.NoError(t, err)
	keys := lookuptest.Chain("a", 100, 32)
	require.NoError(t, c.Store(context.Background(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	answers = new(atomic.Int64)
	end, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-end:
				done <- c.Close()
				return
			default:
			}
			hit, err := c.Lookup(context.Background(), 1600, coordinator.NewHashes(keys, 32))
			if err == nil && hit.Tokens != 1600 {
				err = errors.New("a wrong answer")
			}
			if err != nil {
				done <- err
				return
			}
			answers.Add(1)
		}
	}()
	return answers, func() { close(end); require.NoError(t, <-done) }
}

// Without descriptors the server lives, answers those that it has, and accepts
// again when there are some.
func TestOutOfDescriptors(t *testing.T) {
	requireFiles(t, 1_500)
	const storm, allowed = 1000, 64
	for name, c := range map[string]struct {
		hog  int
		hurt func(st api.Stat) bool
	}{
		"few connections allowed": {0, func(st api.Stat) bool { return st.Closed["max_connections"] == storm+2-allowed && st.AcceptErrors == 0 }},
		"none left":               {90, func(st api.Stat) bool { return st.AcceptErrors > 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			server := startChild(t, childConfig{Listen: []string{"tcp://127.0.0.1:0"}, Files: 128, Hog: c.hog})
			early := dialChild(t, server)
			require.EqualValues(t, allowed, statOf(t, early).MaxConnections)
			answers, stop := lookUpMeanwhile(t, server.addr)
			crowd := dialCrowd(t, server.addr, storm, func(net.Conn) error { return nil })
			lookuptest.Eventually(t, name, func() bool { return c.hurt(statOf(t, early)) })
			seen := answers.Load()
			lookuptest.Eventually(t, "answers go on", func() bool { return answers.Load() > seen+10 })
			crowd.close()
			stop()
			lookuptest.Eventually(t, "room", func() bool { return statOf(t, early).Connections < allowed })
			late := dialChild(t, server)
			pingClient(t, late)
			lookuptest.Eventually(t, "all gone", func() bool { return statOf(t, late).Connections == 2 })
			told := statOf(t, late).AcceptErrors > 0
			log := server.ends(t)
			require.Contains(t, log, "max_connections lowered")
			require.Equal(t, told, strings.Contains(log, "too many open files"), log)
			require.LessOrEqual(t, strings.Count(log, "cannot accept"), 3+int(time.Since(begun)/loglimit.Interval), log)
		})
	}
}
