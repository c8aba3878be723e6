package mooncake

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// release is the release of Mooncake that is tested with.
const release = "0.3.13.post1"

// moreReleases returns those to try as well, named by HITLINE_TEST_MOONCAKE_RELEASES.
// Up to v0.3.11, whose arguments have the other form, a master's admin port cannot
// be bound to loopback; so these run in a network of their own:
//
//	unshare -n sh -c 'ip link set lo up; HITLINE_TEST_MOONCAKE_RELEASES=0.3.11.post1 go test -v -run TestReleases ./backend/mooncake'
func moreReleases() []string {
	return strings.FieldsFunc(os.Getenv("HITLINE_TEST_MOONCAKE_RELEASES"), func(c rune) bool { return c == ',' })
}

// tenantless tells whether a release is one of v0.3.5 to v0.3.11.
func tenantless(release string) bool {
	minor, _, _ := strings.Cut(strings.TrimPrefix(release, "0.3."), ".")
	n, err := strconv.Atoi(minor)
	return err == nil && n < 12
}

// wheel is a virtual environment that has a release of Mooncake: master, client
// and all.
type wheel struct{ dir, release string }

func (w wheel) python() string { return filepath.Join(w.dir, "bin", "python") }

// master returns the master's program.
func (w wheel) master() (string, error) {
	found, err := filepath.Glob(filepath.Join(w.dir, "lib", "python3*", "site-packages", "mooncake", "mooncake_master"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s: no mooncake_master: %v, %w", w.dir, found, err)
	}
	return found[0], nil
}

// check tells why the wheel does not run here: most likely for want of a library.
func (w wheel) check() error {
	if out, err := exec.Command(w.python(), "-c", "import mooncake.store").CombinedOutput(); err != nil {
		return fmt.Errorf("import mooncake.store: %w: %s", err, lastLine(out))
	}
	master, err := w.master()
	if err != nil {
		return err
	}
	// The end status of --version is 0 in some releases and 1 in others.
	if out, err := exec.Command(master, "--version").CombinedOutput(); !strings.Contains(string(out), "mooncake_master") || strings.Contains(string(out), "error while loading") {
		return fmt.Errorf("mooncake_master --version: %w: %s", err, lastLine(out))
	}
	return nil
}

func lastLine(out []byte) string {
	text := strings.TrimSpace(string(out))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// needWheel returns an environment with the release. It is installed from PyPI,
// once: under HITLINE_TEST_MOONCAKE, or the user's cache.
func needWheel(t *testing.T, release string) wheel {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Mooncake masters")
	}
	w, err := wheelOnce(release)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("no Mooncake %s: %v", release, err)
	default:
		t.Skipf("no Mooncake %s: %v", release, err)
	}
	return w
}

// wheels remembers how each release was found, so that without a network only the
// first test that needs it waits.
var wheels struct {
	sync.Mutex
	of map[string]func() (wheel, error)
}

func wheelOnce(release string) (wheel, error) {
	wheels.Lock()
	defer wheels.Unlock()
	if wheels.of == nil {
		wheels.of = map[string]func() (wheel, error){}
	}
	if wheels.of[release] == nil {
		wheels.of[release] = sync.OnceValues(func() (wheel, error) { return installWheel(release) })
	}
	return wheels.of[release]()
}

func installWheel(release string) (wheel, error) {
	root := os.Getenv("HITLINE_TEST_MOONCAKE")
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return wheel{}, err
		}
		root = filepath.Join(cache, "hitline-test-mooncake")
	}
	w := wheel{dir: filepath.Join(root, release), release: release}
	if w.check() == nil {
		return w, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return w, err
	}
	// Built aside and renamed, so that of two tests at once neither sees half of it.
	fresh, err := os.MkdirTemp(root, "building-")
	if err != nil {
		return w, err
	}
	defer os.RemoveAll(fresh)
	if err := buildVenv(fresh, release); err != nil {
		return w, err
	}
	if err := os.Rename(fresh, w.dir); err != nil && w.check() != nil {
		_ = os.RemoveAll(w.dir) // left by an older Python that is gone
		if err := os.Rename(fresh, w.dir); err != nil {
			return w, err
		}
	}
	return w, w.check()
}

func buildVenv(dir, release string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"python3", "-m", "venv", dir},
		{filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1",
			"--only-binary=:all:", "mooncake-transfer-engine-non-cuda==" + release},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lastLine(out))
		}
	}
	return nil
}

// process is a child that a test started and has to end. It dies with the test.
type process struct {
	cmd  *exec.Cmd
	log  syncBuffer
	done chan struct{} // closed when it has ended
}

func (p *process) start(t *testing.T) {
	t.Helper()
	p.cmd.Stderr, p.done = &p.log, make(chan struct{})
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.kill)
}

// kill ends it at once, as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// ended tells whether it has ended by itself.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// realMaster is a mooncake_master.
type realMaster struct {
	process
	rpc, admin string
}

// startMaster runs a master on the address, or on a free one if it is "".
func startMaster(t *testing.T, w wheel, rpc string) *realMaster {
	t.Helper()
	if rpc == "" {
		rpc = freeAddr(t)
	}
	m := &realMaster{rpc: rpc, admin: freeAddr(t)}
	program, err := w.master()
	require.NoError(t, err)
	args := []string{"--rpc_address=127.0.0.1", "--rpc_port=" + portOf(t, rpc), "--metrics_port=" + portOf(t, m.admin),
		"--default_kv_lease_ttl=2000", "--client_ttl=3"}
	if !tenantless(w.release) {
		args = append(args, "--metrics_host=127.0.0.1")
	}
	m.cmd = exec.Command(program, args...)
	m.start(t)
	for _, addr := range []string{rpc, m.admin} {
		eventually(t, "the master listens", func() bool {
			require.False(t, m.ended(), "%s", m.log.String())
			c, err := net.Dial("tcp", addr)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
	}
	return m
}

func portOf(t *testing.T, addr string) string {
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return port
}

// node is a process that puts blocks into the store: testdata/node.py.
type node struct {
	process
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func startNode(t *testing.T, w wheel, m *realMaster) *node {
	t.Helper()
	n := &node{t: t}
	n.cmd = exec.Command(w.python(), filepath.Join("testdata", "node.py"), m.rpc)
	var err error
	n.in, err = n.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := n.cmd.StdoutPipe()
	require.NoError(t, err)
	n.out = bufio.NewReader(out)
	n.start(t)
	require.Equal(t, `"ready"`, n.answer())
	return n
}

// answer reads the next line of the node's that is JSON of ours.
func (n *node) answer() string {
	n.t.Helper()
	line, err := n.out.ReadString('\n')
	require.NoError(n.t, err, "%s", n.log.String())
	return strings.TrimSpace(line)
}

func (n *node) ask(into any, command string, args ...any) {
	n.t.Helper()
	line, err := json.Marshal(append([]any{command}, args...))
	require.NoError(n.t, err)
	_, err = n.in.Write(append(line, '\n'))
	require.NoError(n.t, err)
	require.NoError(n.t, json.Unmarshal([]byte(n.answer()), into))
}

func (n *node) put(keys ...string) {
	n.t.Helper()
	var failed int
	n.ask(&failed, "put", keys)
	require.Zero(n.t, failed, "%s", n.log.String())
}

// exist is the reference's own question.
func (n *node) exist(keys ...string) (answers []int) {
	n.t.Helper()
	n.ask(&answers, "exist", keys)
	return answers
}

func (n *node) remove(key string) (result int) {
	n.t.Helper()
	n.ask(&result, "remove", key)
	return result
}
