package storetest

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	// MooncakeRelease is the release of Mooncake that tests use.
	MooncakeRelease = "0.3.13.post1"
	// MooncakeProbes is the first release whose master can be asked without leases. From it on only
	// masters run without a GPU: nodes are of MooncakeRelease.
	MooncakeProbes = "0.3.14"
)

// cudaRuntime is what the wheels "non-cuda" of v0.3.12.post1 and v0.3.13 are linked with all the same.
const cudaRuntime = "nvidia-cuda-runtime-cu12==12.8.90"

// MooncakeEnv is a Python virtual environment with a release of Mooncake, master and client,
// and with pyzmq, over which vLLM's lookup client asks.
type MooncakeEnv struct {
	venv
	Release string
	node    *MooncakeEnv // has the client, if this one's does not run here
}

// Tenantless reports whether a release is one of v0.3.5 to v0.3.11, which have no tenants.
func Tenantless(release string) bool { return patch(release) < 12 }

// masterOnly reports whether no client of a release runs without a GPU.
func masterOnly(release string) bool { return patch(release) >= patch(MooncakeProbes) }

// patch returns the third number of a release, and a large one for what is not 0.3.x.
func patch(release string) int {
	digits, _, _ := strings.Cut(strings.TrimPrefix(release, "0.3."), ".")
	if n, err := strconv.Atoi(digits); err == nil && strings.HasPrefix(release, "0.3.") {
		return n
	}
	return math.MaxInt
}

// wheels returns the packages with which a release runs.
func wheels(release string) []string {
	if masterOnly(release) {
		return []string{"mooncake-transfer-engine-cuda13==" + release}
	}
	packages := []string{"mooncake-transfer-engine-non-cuda==" + release, "pyzmq==" + pyzmqRelease}
	if release != MooncakeRelease {
		packages = append(packages, cudaRuntime)
	}
	return packages
}

// command returns a command of the environment, which finds the libraries of its packages.
func (e *MooncakeEnv) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	libraries, _ := filepath.Glob(filepath.Join(e.dir, "lib", "python3*", "site-packages", "nvidia", "*", "lib"))
	if len(libraries) > 0 {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	}
	return cmd
}

// master returns the path of mooncake_master.
func (e *MooncakeEnv) master() (string, error) {
	found, err := filepath.Glob(filepath.Join(e.dir, "lib", "python3*", "site-packages", "mooncake", "mooncake_master"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s: no mooncake_master: %v, %w", e.dir, found, err)
	}
	return found[0], nil
}

// Python returns the path of a Python with a client.
func (e *MooncakeEnv) Python() string { return e.client().python() }

// client returns the environment whose client is used.
func (e *MooncakeEnv) client() *MooncakeEnv {
	if e.node != nil {
		return e.node
	}
	return e
}

// BindsAdmin reports whether a master can bind its admin port to loopback: v0.3.12.post1 cannot.
func (e *MooncakeEnv) BindsAdmin() bool { return patch(e.Release) >= 13 }

// Default returns the value that a flag of the master has if it is not given, as --help has it.
func (e *MooncakeEnv) Default(t testing.TB, flag string) string {
	t.Helper()
	program, err := e.master()
	require.NoError(t, err)
	help, _ := e.command(program, "--help").CombinedOutput() // its exit status is 1
	text := strings.Join(strings.Fields(string(help)), " ")
	found := regexp.MustCompile(" -" + flag + ` \(.*? default: (\S+)`).FindStringSubmatch(text)
	if found == nil {
		return "no such flag"
	}
	return strings.Trim(found[1], `"`)
}

// check returns why Mooncake does not run on this machine. Most often a library is missing.
func (e *MooncakeEnv) check() error {
	if masterOnly(e.Release) {
		return e.checkMaster()
	}
	if out, err := e.command(e.python(), "-c", "import mooncake.store, zmq").CombinedOutput(); err != nil {
		return fmt.Errorf("import mooncake.store, zmq: %w: %s", err, lastLine(out))
	}
	return e.checkMaster()
}

func (e *MooncakeEnv) checkMaster() error {
	master, err := e.master()
	if err != nil {
		return err
	}
	// The exit status of --version is 0 in some releases and 1 in others.
	if out, err := e.command(master, "--version").CombinedOutput(); !strings.Contains(string(out), "mooncake_master") || strings.Contains(string(out), "error while loading") {
		return fmt.Errorf("mooncake_master --version: %w: %s", err, lastLine(out))
	}
	return nil
}

// RequireMooncake returns an environment with the release. It installs it from PyPI once,
// below the directory HITLINE_TEST_MOONCAKE or in the user's cache.
func RequireMooncake(t testing.TB, release string) *MooncakeEnv {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Mooncake masters")
	}
	e, err := mooncakeEnvOnce(release)
	if err != nil {
		SkipOrFail(t, "no Mooncake %s: %v", release, err)
	}
	if masterOnly(release) {
		return &MooncakeEnv{venv: e.venv, Release: release, node: RequireMooncake(t, MooncakeRelease)}
	}
	return e
}

// mooncakeEnvs has the result of each installation: without a network only the first test
// waits.
var mooncakeEnvs struct {
	sync.Mutex
	byRelease map[string]func() (*MooncakeEnv, error)
}

// mooncakeEnvOnce installs a release, once per process.
func mooncakeEnvOnce(release string) (*MooncakeEnv, error) {
	mooncakeEnvs.Lock()
	defer mooncakeEnvs.Unlock()
	if mooncakeEnvs.byRelease == nil {
		mooncakeEnvs.byRelease = map[string]func() (*MooncakeEnv, error){}
	}
	if mooncakeEnvs.byRelease[release] == nil {
		mooncakeEnvs.byRelease[release] = sync.OnceValues(func() (*MooncakeEnv, error) {
			dir, err := cacheDir("HITLINE_TEST_MOONCAKE", "hitline-test-mooncake", release+"-pyzmq-"+pyzmqRelease)
			e := &MooncakeEnv{venv: venv{dir: dir, packages: wheels(release)}, Release: release}
			e.verify = e.check
			if err == nil {
				err = e.install()
			}
			return e, err
		})
	}
	return mooncakeEnvs.byRelease[release]()
}

// Master is a running mooncake_master.
type Master struct {
	Process
	RPC, Admin string // addresses host:port
}

// StartMaster starts a master with the RPC address rpc, or with a free one if rpc is "". Its
// leases last 2 s. flags come last and win.
func StartMaster(t testing.TB, e *MooncakeEnv, rpc string, flags ...string) *Master {
	t.Helper()
	if rpc == "" {
		rpc = FreeAddr(t)
	}
	m := &Master{RPC: rpc, Admin: FreeAddr(t)}
	program, err := e.master()
	require.NoError(t, err)
	args := []string{"--rpc_address=127.0.0.1", "--rpc_port=" + portOf(t, rpc), "--metrics_port=" + portOf(t, m.Admin),
		"--default_kv_lease_ttl=2000", "--client_ttl=3"}
	if e.BindsAdmin() {
		args = append(args, "--metrics_host=127.0.0.1")
	}
	m.Cmd = e.command(program, append(args, flags...)...)
	m.Start(t)
	for _, addr := range []string{rpc, m.Admin} {
		Eventually(t, "the master listens", func() bool {
			require.False(t, m.exited(), "%s", m.Log.String())
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

// NodeBytes is the memory of a Node.
const NodeBytes = 256 << 20

//go:embed node.py
var nodeProgram string

// Node is a process with Mooncake's own client, which stores blocks in its memory.
type Node struct {
	Process
	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

// StartNode starts a node of a master. Its blocks are lost when it exits.
func StartNode(t testing.TB, e *MooncakeEnv, m *Master) *Node {
	t.Helper()
	n := &Node{t: t}
	n.Cmd = e.client().command(e.Python(), "-c", nodeProgram, m.RPC, strconv.Itoa(NodeBytes))
	var err error
	n.in, err = n.Cmd.StdinPipe()
	require.NoError(t, err)
	out, err := n.Cmd.StdoutPipe()
	require.NoError(t, err)
	n.out = bufio.NewReader(out)
	n.Start(t)
	require.Equal(t, `"ready"`, n.readLine())
	return n
}

// readLine reads the next line of the node's output.
func (n *Node) readLine() string {
	n.t.Helper()
	line, err := n.out.ReadString('\n')
	require.NoError(n.t, err, "%s", n.Log.String())
	return strings.TrimSpace(line)
}

// call sends a command and decodes its result into v.
func (n *Node) call(v any, command string, args ...any) {
	n.t.Helper()
	line, err := json.Marshal(append([]any{command}, args...))
	require.NoError(n.t, err)
	_, err = n.in.Write(append(line, '\n'))
	require.NoError(n.t, err)
	require.NoError(n.t, json.Unmarshal([]byte(n.readLine()), v))
}

// Put stores blocks of the given keys.
func (n *Node) Put(keys ...string) {
	n.t.Helper()
	var failed int
	n.call(&failed, "put", keys)
	require.Zero(n.t, failed, "%s", n.Log.String())
}

// PutSized stores blocks of size bytes each.
func (n *Node) PutSized(size int, keys ...string) {
	n.t.Helper()
	require.Zero(n.t, n.TryPut(nil, size, keys...), "%s", n.Log.String())
}

// TryPut stores blocks of size bytes each, with fields of Mooncake's ReplicateConfig. It returns the error code of the store, 0 if there is
// none.
func (n *Node) TryPut(config map[string]any, size int, keys ...string) (code int) {
	n.t.Helper()
	n.call(&code, "put", keys, size, config)
	return code
}

// Get loads a block. It returns its size, 0 if there is none.
func (n *Node) Get(key string) (size int) {
	n.t.Helper()
	n.call(&size, "get", key)
	return size
}

// Follow begins to receive the events that a master publishes.
func (n *Node) Follow(endpoint string) {
	n.t.Helper()
	var ok bool
	n.call(&ok, "follow", endpoint)
}

// Events returns the next events, each a type and a key, after it has waited for a moment if there are none.
func (n *Node) Events() (events [][2]string) {
	n.t.Helper()
	n.call(&events, "events")
	return events
}

// RemoveAll removes all blocks, also those that are leased. It returns how many there were.
func (n *Node) RemoveAll() (removed int) {
	n.t.Helper()
	n.call(&removed, "remove all")
	return removed
}

// Exist returns batch_is_exist of Mooncake's client, which the reference calls.
func (n *Node) Exist(keys ...string) (answers []int) {
	n.t.Helper()
	n.call(&answers, "exist", keys)
	return answers
}

// Remove removes a block. It returns the error code of the store, 0 if there is none.
func (n *Node) Remove(key string) (result int) {
	n.t.Helper()
	n.call(&result, "remove", key)
	return result
}
