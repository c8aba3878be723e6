package server

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// serveOn starts a server on addresses of the test's own; change may alter its
// configuration.
func serveOn(t testing.TB, change func(*Config), listen ...string) (*Server, error) {
	t.Helper()
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	cfg := Config{Loops: 2}
	for _, address := range listen {
		cfg.Listeners = append(cfg.Listeners, Listener{Address: address})
	}
	if change != nil {
		change(&cfg)
	}
	server, err := New(service, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), lookuptest.Patience)
	defer cancel()
	if err := server.Start(ctx); err != nil {
		<-server.Done()
		return nil, err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
	return server, nil
}

func pings(t testing.TB, addr string) {
	t.Helper()
	c, err := client.Dial(context.Background(), addr, client.WithTimeout(lookuptest.Patience))
	require.NoError(t, err, addr)
	defer c.Close()
	pingClient(t, c)
}

// longestPath is how many bytes the path of a unix socket has at most.
const longestPath = 107

// The longest path that is accepted can be listened on.
func TestLongestIPCPath(t *testing.T) {
	dir := t.TempDir()
	if len(dir) > 80 {
		t.Skip("the directory for temporary files has too long a path")
	}
	path := dir + "/" + strings.Repeat("x", longestPath-len(dir)-1)
	server, err := serveOn(t, nil, "ipc://"+path)
	require.NoError(t, err)
	for _, addr := range server.Addrs() {
		pings(t, addr)
	}
}

// 0.0.0.0 is of IPv4 alone.
func TestIPv4Alone(t *testing.T) {
	server, err := serveOn(t, nil, "tcp://0.0.0.0:0")
	require.NoError(t, err)
	port := portOf(t, server)
	pings(t, "127.0.0.1:"+port)
	_, err = net.Dial("tcp", "[::1]:"+port)
	require.Error(t, err, "IPv6 was not asked for")
}

// portOf returns the port of a server's first address.
func portOf(t testing.TB, server *Server) string {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(server.Addrs()[0], "tcp://"))
	require.NoError(t, err)
	return port
}

// [::] serves both families. Peers of IPv4 are what they are to a listener of IPv4.
func TestBothFamilies(t *testing.T) {
	var log logtest.Buffer
	server, err := serveOn(t, logTo(&log), "tcp://[::]:0")
	require.NoError(t, err)
	port := portOf(t, server)
	require.Equal(t, "tcp://[::]:"+port, server.Addrs()[0])
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		pings(t, host+":"+port)
		require.Contains(t, log.String(), `msg="connection opened" peer=`+host+":")
	}
}

// An address for IPv4 at the same port has the connections of IPv4.
func TestBothFamiliesApart(t *testing.T) {
	_, port, err := net.SplitHostPort(storetest.FreeAddr(t))
	require.NoError(t, err)
	for _, listen := range [][]string{{"tcp://0.0.0.0:" + port, "tcp://[::]:" + port}, {"tcp://[::]:" + port, "tcp://127.0.0.1:" + port}} {
		server, err := serveOn(t, nil, listen...)
		require.NoError(t, err, listen)
		require.Equal(t, listen, server.Addrs())
		pings(t, "127.0.0.1:"+port)
		pings(t, "[::1]:"+port)
		require.NoError(t, server.Shutdown(t.Context()))
	}
}

func TestIPC(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	addrs := []string{"ipc://" + path, "tcp://127.0.0.1:0"}
	server, err := serveOn(t, nil, addrs...)
	require.NoError(t, err)
	require.Equal(t, addrs[0], server.Addrs()[0])
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, DefaultIPCMode, info.Mode().Perm())

	keys := lookuptest.Chain("a", 1000, 32)
	for i, addr := range server.Addrs() {
		c, err := client.Dial(context.Background(), addr, client.WithTimeout(lookuptest.Patience))
		require.NoError(t, err)
		if i == 0 {
			require.NoError(t, c.Store(context.Background(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
		}
		hit, err := c.Lookup(context.Background(), 16000, coordinator.NewHashes(keys, 32))
		require.NoError(t, err)
		require.EqualValues(t, 16000, hit.Tokens, addr)
		require.NoError(t, c.Close())
	}
	lookuptest.Eventually(t, "all gone", func() bool { return server.conns.number() == 0 })
	require.NoError(t, server.Shutdown(context.Background()))
	require.NoFileExists(t, path)
}

// logTo keeps a server's log.
func logTo(log *logtest.Buffer) func(*Config) {
	return func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
}

func TestIPCMode(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077)) // must not matter
	path := filepath.Join(t.TempDir(), "s")
	_, err := serveOn(t, func(cfg *Config) { cfg.IPCMode = 0o666 }, "ipc://"+path)
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o666, info.Mode().Perm())
}

// What is at the path of a socket and is none is left alone.
func TestIPCPathTaken(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"file":              func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"directory":         func(path string) error { return os.Mkdir(path, 0o700) },
		"symlink":           func(path string) error { return os.Symlink("/nowhere", path) },
		"symlink to a dir":  func(path string) error { return os.Symlink("/", path) },
		"named pipe":        func(path string) error { return unix.Mkfifo(path, 0o600) },
		"symlink to socket": func(path string) error { return os.Symlink(staleSocket(t), path) },
	} {
		path := filepath.Join(t.TempDir(), "s")
		require.NoError(t, put(path), name)
		before, err := os.Lstat(path)
		require.NoError(t, err)
		_, err = serveOn(t, nil, "tcp://127.0.0.1:0", "ipc://"+path)
		require.ErrorContains(t, err, "cannot serve ipc://"+path, name)
		require.ErrorContains(t, err, "no socket", name)
		require.ErrorContains(t, err, "remove it", name)
		after, err := os.Lstat(path)
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after), name)
	}
	_, err := serveOn(t, nil, "ipc:///no/such/directory/s")
	require.ErrorContains(t, err, "no such file or directory")
}

// staleSocket returns the path of a socket whose server is gone.
func staleSocket(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stale")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	ln.SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())
	return path
}

func TestIPCStale(t *testing.T) {
	path := staleSocket(t)
	server, err := serveOn(t, nil, "ipc://"+path)
	require.NoError(t, err)
	pings(t, server.Addrs()[0])

	_, err = serveOn(t, nil, "ipc://"+path)
	require.ErrorContains(t, err, "in use by a running server")
	require.ErrorIs(t, err, unix.EADDRINUSE)
	pings(t, server.Addrs()[0])
}

// A server removes its own socket only.
func TestIPCReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old, err := serveOn(t, nil, "ipc://"+path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	server, err := serveOn(t, nil, "ipc://"+path)
	require.NoError(t, err)
	require.NoError(t, old.Shutdown(context.Background()))
	pings(t, server.Addrs()[0])
	require.NoError(t, server.Shutdown(context.Background()))
	require.NoFileExists(t, path)
}

// One address that cannot be had gives back the others.
func TestListenAllOrNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, err = serveOn(t, nil, "ipc://"+path, "tcp://"+taken.Addr().String())
	require.ErrorContains(t, err, "cannot serve tcp://"+taken.Addr().String())
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.NoFileExists(t, path)
}

// Connections are spread evenly over the loops, also over several listeners.
func TestLoopsAreEven(t *testing.T) {
	server, err := serveOn(t, func(cfg *Config) { cfg.Loops = 4 }, "tcp://127.0.0.1:0", "ipc://"+filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	const each = 10
	for i := range 4 * each {
		network, target, _ := api.SplitAddress(server.Addrs()[i/(2*each)])
		conn, err := net.Dial(network, target)
		require.NoError(t, err)
		defer conn.Close()
		lookuptest.Eventually(t, "open", func() bool { return server.conns.number() == i+1 })
	}
	loops := map[any]int{}
	server.conns.mu.Lock()
	defer server.conns.mu.Unlock()
	for c := range server.conns.all {
		loops[c.wire.(gnet.Conn).EventLoop()]++
	}
	require.Len(t, loops, 4)
	for _, n := range loops {
		require.Equal(t, each, n, "%v", loops)
	}
}
