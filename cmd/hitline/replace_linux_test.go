package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/storetest"
)

// replaceEnv is how often TestReplace replaces a server in each way.
const replaceEnv = "HITLINE_TEST_REPLACE"

// What is allowed if times are checked.
const (
	maxStart     = 50 * time.Millisecond  // until a server answers
	maxLeave     = 100 * time.Millisecond // from the first closed raw connection to the exit
	maxP99       = 50 * time.Millisecond  // of the second of a change
	maxP99OfStop = 200 * time.Millisecond // likewise, if nobody listens meanwhile
)

// TestReplace replaces a server over Redis while clients look up, in each way and over each transport. No lookup is lost,
// answered wrong or answered 0.
//
// HITLINE_TEST_REPLACE is how often, such as 10. Then the load is that of many engines, clients have their default timeout,
// and times are checked: the machine must have nothing else to do.
func TestReplace(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	scale := replaceScale{times: 1, goClients: 4, goRate: 25, pythonRate: 20, timeout: storetest.Timeout}
	if text := os.Getenv(replaceEnv); text != "" {
		times, err := strconv.Atoi(text)
		require.NoError(t, err, replaceEnv)
		scale = replaceScale{times: times, goClients: 8, goRate: 200, pythonRate: 100, timeout: 200 * time.Millisecond, measured: true}
	}
	redis := storetest.StartRedis(t)
	for _, network := range []string{"tcp", "ipc", "tls"} {
		for _, w := range replaceWays {
			if !scale.measured && !strings.Contains(w.brief, network) {
				continue
			}
			t.Run(network+"/"+w.name, func(t *testing.T) {
				if !scale.measured {
					t.Parallel()
				}
				w.run(t, network, overRedis(redis), scale)
			})
		}
	}
}

func overRedis(redis *storetest.Redis) string {
	return "{redis: {url: 'redis://" + redis.Addr + "', timeout: 5s}}"
}

// A server is there soon after its start. Away for good it costs an engine at most 1 % more time than its answers did. Both
// are times, which need the machine alone.
func TestServerComesAndGoes(t *testing.T) {
	if os.Getenv(replaceEnv) == "" {
		t.Skip(replaceEnv + " is not set")
	}
	const times = 10
	mooncake := storetest.RequireMooncake(t, storetest.MooncakeRelease)
	redis, master := storetest.StartRedis(t), storetest.StartMaster(t, mooncake, "")
	for name, backend := range map[string]string{"redis": overRedis(redis), "mooncake": "{mooncake: {masters: ['" + master.RPC + "']}}"} {
		s := newReplacedServer(t, "tcp", backend, nil, false)
		s.start()
		for range times {
			s.kill()
		}
		t.Log(name, s.summary())
		assert.LessOrEqual(t, slices.Max(s.starts), maxStart, name)
	}

	s := newReplacedServer(t, "tcp", overRedis(redis), nil, false)
	s.start()
	load := startLoad(t, s.address, nil, replaceScale{goClients: 2, goRate: 1, pythonRate: 100, timeout: 200 * time.Millisecond})
	load.awaitAnswers()
	const there, away = 5 * time.Second, 30 * time.Second
	begun := time.Now()
	time.Sleep(there)
	gone := time.Now()
	require.NoError(t, s.cmd.Process.Kill())
	time.Sleep(away)
	load.stop()
	for _, name := range replaceClients[2:] {
		before, after := load.waited(name, begun, gone), load.waited(name, gone, gone.Add(away))
		t.Logf("%s: the engine waited %v in %v with a server, and %v in %v without", name, before, there, after, away)
		assert.LessOrEqual(t, after.Seconds()-before.Seconds()*away.Seconds()/there.Seconds(), away.Seconds()/100, name)
	}
}

// replaceScale is how much is asked, and how often a server is replaced.
type replaceScale struct {
	times      int
	goClients  int
	goRate     int // lookups a second of a client
	pythonRate int // likewise
	timeout    time.Duration
	measured   bool // times are checked
}

// replaceWay is a way to replace a server.
type replaceWay struct {
	name    string
	brief   string // the networks over which it is tested also if HITLINE_TEST_REPLACE is not set
	servers int
	held    bool // the test holds the server's socket
	replace func(s *replacedServer)
	// which are the lookups that may be answered 0, or fail.
	fails func(o *outcome, c *replaceChange) bool
	p99   time.Duration // 0: not checked
}

var replaceWays = []replaceWay{
	{name: "held", brief: "tcp ipc", servers: 1, held: true, replace: (*replacedServer).restart, p99: maxP99},
	{name: "stop and start", brief: "tcp ipc tls", servers: 1, replace: (*replacedServer).restart, p99: maxP99OfStop, fails: blocksInGap},
	{name: "list", brief: "tls", servers: 2, replace: (*replacedServer).restart, p99: maxP99},
	{name: "limits", brief: "tcp", servers: 1, replace: (*replacedServer).reloadLimits, p99: maxP99},
	{name: "pools", brief: "tcp", servers: 1, replace: (*replacedServer).reloadPools, p99: maxP99},
	{name: "kill", servers: 1, replace: (*replacedServer).kill, fails: inGap},
	{name: "kill in list", servers: 2, replace: (*replacedServer).kill, fails: inFlight},
}

// blocksInGap allows a lookup to fail that blocks, and was asked while there was no server.
func blocksInGap(o *outcome, c *replaceChange) bool {
	return !strings.Contains(o.client, "async") && inGap(o, c)
}

// inGap allows a lookup to fail that was asked before the new server answered.
func inGap(o *outcome, c *replaceChange) bool {
	return o.due.Add(o.took).After(c.begin) && o.due.Before(c.end)
}

// inFlight allows a lookup to fail that was in flight when the server was killed.
func inFlight(o *outcome, c *replaceChange) bool {
	return o.due.Before(c.begin) && o.due.Add(o.took).After(c.begin)
}

// replaceChange is when a server was replaced.
type replaceChange struct{ begin, end time.Time }

func (w replaceWay) run(t *testing.T, network, backend string, scale replaceScale) {
	var secure *replaceTLS
	if network == "tls" {
		secure = newReplaceTLS(t)
	}
	var servers []*replacedServer
	var addresses []string
	for range w.servers {
		s := newReplacedServer(t, network, backend, secure, w.held)
		s.start()
		servers, addresses = append(servers, s), append(addresses, s.address)
	}
	load := startLoad(t, strings.Join(addresses, ","), secure, scale)
	var changes []*replaceChange
	for i := range scale.times {
		load.awaitAnswers()
		c := &replaceChange{begin: time.Now()}
		w.replace(servers[i%len(servers)])
		c.end = time.Now()
		changes = append(changes, c)
		if scale.measured {
			time.Sleep(time.Until(c.begin.Add(2 * time.Second)))
		}
	}
	load.awaitAnswers()
	load.stop()
	for _, s := range servers {
		t.Log(s.summary())
		if scale.measured && len(s.leaves) > 0 {
			assert.LessOrEqual(t, slices.Max(s.leaves), maxLeave)
		}
	}
	load.check(w, changes)
}

// replacedServer is a process that serves an address, and that is replaced.
type replacedServer struct {
	t       *testing.T
	network string // tcp, ipc or tls
	address string // as clients give it
	target  string // as net.Dial takes it
	tls     *replaceTLS
	file    string   // the configuration
	text    string   // of it, but for what a reload changes
	reloads int      // how often it was reloaded
	socket  *os.File // nil unless the test holds it
	log     string   // a file
	cmd     *exec.Cmd

	starts, leaves []time.Duration // from the start to the first answer; from the first closed connection to the exit
}

// replaceTLS is a certificate of servers, and what their clients have.
type replaceTLS struct {
	certFile, keyFile string
	caFile            string
	client            *tls.Config
}

func newReplaceTLS(t *testing.T) *replaceTLS {
	dir, ca := t.TempDir(), certtest.NewCA("ca")
	s := &replaceTLS{caFile: ca.WriteFile(filepath.Join(dir, "ca.crt"))}
	s.certFile, s.keyFile = certtest.WriteFiles(dir, "server", ca.Leaf("127.0.0.1"))
	s.client = &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS13}
	return s
}

func newReplacedServer(t *testing.T, network, backend string, secure *replaceTLS, held bool) *replacedServer {
	dir, err := os.MkdirTemp("", "replace") //nolint:usetesting // a short path: that of a unix socket is bounded
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &replacedServer{t: t, network: network, tls: secure, target: filepath.Join(dir, "s"), file: filepath.Join(dir, "hitline.yaml"), log: filepath.Join(dir, "log")}
	if network != "ipc" {
		s.target = storetest.FreeAddr(t)
	}
	s.address = network + "://" + s.target
	listen := "'" + s.address + "'"
	if secure != nil {
		listen = fmt.Sprintf("{address: '%s', tls: {cert: %s, key: %s}}", s.address, secure.certFile, secure.keyFile)
	}
	if held {
		s.socket, _ = holdSocket(t, s.dialNetwork(), s.target)
	}
	s.text = fmt.Sprintf("listen: [%s]\nlog: {format: json}\nbackend: %s\n", listen, backend)
	s.configure(fmt.Sprintf("pool: {vllm: '%s', model_name: m}\n", replaceRelease))
	t.Cleanup(func() {
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
		if t.Failed() {
			text, _ := os.ReadFile(s.log)
			t.Logf("%s", text)
		}
	})
	return s
}

func (s *replacedServer) dialNetwork() string {
	if s.network == "ipc" {
		return "unix"
	}
	return "tcp"
}

// configure writes the configuration, with more text.
func (s *replacedServer) configure(more string) {
	require.NoError(s.t, os.WriteFile(s.file+".new", []byte(s.text+more), 0o600))
	require.NoError(s.t, os.Rename(s.file+".new", s.file))
}

// start starts the process, and returns when it has answered.
func (s *replacedServer) start() {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(s.t, err)
	defer func() { _ = log.Close() }()
	passing := ":"
	if s.socket != nil { // only the process itself knows its number before it begins
		passing = "export LISTEN_FDS=1 LISTEN_PID=$$"
	}
	s.cmd = programIn(s.t, passing, "serve", "--config", s.file)
	if s.socket != nil {
		s.cmd.ExtraFiles = []*os.File{s.socket}
	}
	s.cmd.Stderr = log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begun := time.Now()
	require.NoError(s.t, s.cmd.Start())
	storetest.Eventually(s.t, "the server answers", func() bool {
		conn, err := s.ping()
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	s.starts = append(s.starts, time.Since(begun))
}

// ping returns a raw connection on which the server has answered.
func (s *replacedServer) ping() (net.Conn, error) {
	conn, err := net.Dial(s.dialNetwork(), s.target)
	if err != nil {
		return nil, err
	}
	if s.tls != nil {
		config := s.tls.client.Clone()
		config.ServerName = "127.0.0.1"
		conn = tls.Client(conn, config)
	}
	_ = conn.SetDeadline(time.Now().Add(storetest.Timeout))
	if _, err = io.WriteString(conn, pingMessage); err == nil {
		_, err = io.ReadFull(conn, make([]byte, len(pingReply)))
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// restart stops the process as a service manager does, and starts it again.
func (s *replacedServer) restart() {
	idle, err := s.ping()
	require.NoError(s.t, err)
	defer func() { _ = idle.Close() }()
	closed := make(chan time.Time, 1)
	go func() {
		_, _ = io.Copy(io.Discard, idle)
		closed <- time.Now()
	}()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(s.t, s.cmd.Wait())
	ended := time.Now()
	s.leaves = append(s.leaves, ended.Sub(<-closed))
	s.start()
}

// kill kills the process, and starts it again.
func (s *replacedServer) kill() {
	require.NoError(s.t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	s.start()
}

// reloadLimits has the process take another limit.
func (s *replacedServer) reloadLimits() {
	s.reload(fmt.Sprintf("pool: {vllm: '%s', model_name: m}\nlimits: {max_hashes: %d}\n", replaceRelease, 1000+s.reloads), "limits.max_hashes")
}

// reloadPools has the process take another pool in place of the one that clients ask, whose blocks have the same keys.
func (s *replacedServer) reloadPools() {
	s.reload(fmt.Sprintf("pool: {vllm: '%s', model_name: m, num_kv_head: %d}\npools: {p: {model_name: p%d}}\n", replaceRelease, 1+(s.reloads+1)%2, s.reloads), "pool.num_kv_head")
}

func (s *replacedServer) reload(more, changes string) {
	s.configure(more)
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGHUP))
	s.reloads++
	storetest.Eventually(s.t, "it is reloaded", func() bool { return len(s.reloaded()) == s.reloads })
	assert.Contains(s.t, s.reloaded()[s.reloads-1], changes)
}

// reloaded returns the lines of the log about reloads.
func (s *replacedServer) reloaded() (lines []string) {
	text, err := os.ReadFile(s.log)
	require.NoError(s.t, err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"msg":"reloaded"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// summary says how long starts and stops took.
func (s *replacedServer) summary() string {
	return fmt.Sprintf("%s: from the start to the first answer %v; from the first closed connection to the exit %v", s.address, s.starts, s.leaves)
}
