package storetest

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// MooncakeRelease is the release of Mooncake that is tested with.
const MooncakeRelease = "0.3.13.post1"

// Wheel is a virtual environment that has a release of Mooncake: master, client
// and all.
type Wheel struct {
	venv
	Release string
}

// Tenantless tells whether a release is one of v0.3.5 to v0.3.11.
func Tenantless(release string) bool {
	minor, _, _ := strings.Cut(strings.TrimPrefix(release, "0.3."), ".")
	n, err := strconv.Atoi(minor)
	return err == nil && n < 12
}

// master returns the master's program.
func (w *Wheel) master() (string, error) {
	found, err := filepath.Glob(filepath.Join(w.dir, "lib", "python3*", "site-packages", "mooncake", "mooncake_master"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s: no mooncake_master: %v, %w", w.dir, found, err)
	}
	return found[0], nil
}

// check tells why the wheel does not run here: most likely for want of a library.
func (w *Wheel) check() error {
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

// NeedWheel returns an environment with the release. It is installed from PyPI,
// once: under HITLINE_TEST_MOONCAKE, or the user's cache.
func NeedWheel(t testing.TB, release string) *Wheel {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Mooncake masters")
	}
	w, err := wheelOnce(release)
	if err != nil {
		Missing(t, "no Mooncake %s: %v", release, err)
	}
	return w
}

// wheels remembers how each release was found, so that without a network only the
// first test that needs it waits.
var wheels struct {
	sync.Mutex
	of map[string]func() (*Wheel, error)
}

func wheelOnce(release string) (*Wheel, error) {
	wheels.Lock()
	defer wheels.Unlock()
	if wheels.of == nil {
		wheels.of = map[string]func() (*Wheel, error){}
	}
	if wheels.of[release] == nil {
		wheels.of[release] = sync.OnceValues(func() (*Wheel, error) {
			dir, err := cached("HITLINE_TEST_MOONCAKE", "hitline-test-mooncake", release)
			w := &Wheel{venv: venv{dir: dir, pip: "mooncake-transfer-engine-non-cuda==" + release}, Release: release}
			w.good = w.check
			if err == nil {
				err = w.installed()
			}
			return w, err
		})
	}
	return wheels.of[release]()
}

// Process is a child that a test started and has to end. It dies with the test.
type Process struct {
	Cmd  *exec.Cmd
	log  logBuffer
	done chan struct{} // closed when it has ended
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (p *Process) start(t testing.TB) {
	t.Helper()
	p.Cmd.Stderr, p.done = &p.log, make(chan struct{})
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, p.Cmd.Start())
	go func() {
		_ = p.Cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.Kill)
}

// Kill ends it at once, as kill -9 does.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.done
}

// ended tells whether it has ended by itself.
func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Master is a mooncake_master.
type Master struct {
	Process
	RPC, Admin string // addresses
}

// StartMaster runs a master on the address, or on a free one if it is "". Its leases
// last 2 s.
func StartMaster(t testing.TB, w *Wheel, rpc string) *Master {
	t.Helper()
	if rpc == "" {
		rpc = FreeAddr(t)
	}
	m := &Master{RPC: rpc, Admin: FreeAddr(t)}
	program, err := w.master()
	require.NoError(t, err)
	args := []string{"--rpc_address=127.0.0.1", "--rpc_port=" + portOf(t, rpc), "--metrics_port=" + portOf(t, m.Admin),
		"--default_kv_lease_ttl=2000", "--client_ttl=3"}
	if !Tenantless(w.Release) {
		args = append(args, "--metrics_host=127.0.0.1")
	}
	m.Cmd = exec.Command(program, args...)
	m.start(t)
	for _, addr := range []string{rpc, m.Admin} {
		Eventually(t, "the master listens", func() bool {
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

func portOf(t testing.TB, addr string) string {
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return port
}

//go:embed node.py
var nodeProgram string

// Node is a process that puts blocks into a Mooncake store with Mooncake's own client.
type Node struct {
	Process
	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

// StartNode starts one. Its blocks are gone when it is.
func StartNode(t testing.TB, w *Wheel, m *Master) *Node {
	t.Helper()
	n := &Node{t: t}
	n.Cmd = exec.Command(w.python(), "-c", nodeProgram, m.RPC)
	var err error
	n.in, err = n.Cmd.StdinPipe()
	require.NoError(t, err)
	out, err := n.Cmd.StdoutPipe()
	require.NoError(t, err)
	n.out = bufio.NewReader(out)
	n.start(t)
	require.Equal(t, `"ready"`, n.answer())
	return n
}

// answer reads the next line of the node's that is JSON of ours.
func (n *Node) answer() string {
	n.t.Helper()
	line, err := n.out.ReadString('\n')
	require.NoError(n.t, err, "%s", n.log.String())
	return strings.TrimSpace(line)
}

func (n *Node) ask(into any, command string, args ...any) {
	n.t.Helper()
	line, err := json.Marshal(append([]any{command}, args...))
	require.NoError(n.t, err)
	_, err = n.in.Write(append(line, '\n'))
	require.NoError(n.t, err)
	require.NoError(n.t, json.Unmarshal([]byte(n.answer()), into))
}

// Put puts blocks.
func (n *Node) Put(keys ...string) {
	n.t.Helper()
	var failed int
	n.ask(&failed, "put", keys)
	require.Zero(n.t, failed, "%s", n.log.String())
}

// Exist is the reference's own question.
func (n *Node) Exist(keys ...string) (answers []int) {
	n.t.Helper()
	n.ask(&answers, "exist", keys)
	return answers
}

// Remove removes a block, and returns an error of the store's.
func (n *Node) Remove(key string) (result int) {
	n.t.Helper()
	n.ask(&result, "remove", key)
	return result
}
