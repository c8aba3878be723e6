package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// fakeReloadable records what a reload does to a server.
type fakeReloadable struct {
	calls    []string
	settings map[string]server.Settings
	limits   server.Limits
	pools    []server.ServedPool
}

func (f *fakeReloadable) SetListener(address string, settings server.Settings) error {
	f.calls = append(f.calls, address)
	f.settings[address] = settings
	return nil
}

func (f *fakeReloadable) SetLimits(limits server.Limits) error {
	f.calls = append(f.calls, "limits")
	f.limits = limits
	return nil
}

func (f *fakeReloadable) SetPools(own *lookup.Service, named []server.ServedPool, _ func(coordinator.Pool) (*lookup.Service, error)) ([]server.GonePool, error) {
	f.calls = append(f.calls, "pools")
	f.pools = nil
	if own != nil {
		f.pools = []server.ServedPool{{Service: own}}
	}
	f.pools = append(f.pools, named...)
	return []server.GonePool{{Name: "x", Blocks: 7}}, nil
}

func (f *fakeReloadable) Pools() []server.ServedPool { return f.pools }

func (f *fakeReloadable) take() []string {
	calls := f.calls
	f.calls = nil
	return calls
}

// testReloader is a reloader over a fakeReloadable.
type testReloader struct {
	*reloader
	t    *testing.T
	file string
	srv  *fakeReloadable
	logs logtest.Buffer
}

// newTestReloader returns the reloader of a server that was started with a configuration.
func newTestReloader(t *testing.T, yaml string) *testReloader {
	t.Helper()
	r := &testReloader{t: t, file: configFile(t, yaml), srv: &fakeReloadable{settings: map[string]server.Settings{}}}
	source := config.Source{File: r.file}
	cfg, err := config.Load(source)
	require.NoError(t, err)
	level := new(slog.LevelVar)
	running := &running{source: source, cfg: cfg, listeners: listenersOf(cfg), level: level, logger: newLogger(&r.logs, "text", level)}
	running.read, err = readListeners(running.listeners)
	require.NoError(t, err)
	running.file = watchFile(r.file)
	running.services = newPoolServices(cfg, nil, running.logger)
	running.service, err = running.services.defaultPool()
	require.NoError(t, err)
	running.named, err = running.services.namedPools()
	require.NoError(t, err)
	r.reloader = newReloader(running, r.srv)
	return r
}

// write replaces the configuration.
func (r *testReloader) write(yaml string) {
	require.NoError(r.t, os.WriteFile(r.file, []byte(yaml), 0o600))
}

// lines returns the log since the last call, without times.
func (r *testReloader) lines() []string {
	lines := r.logs.Take()
	for i, line := range lines {
		_, lines[i], _ = strings.Cut(line, " ")
	}
	return lines
}

func TestReload(t *testing.T) {
	r := newTestReloader(t, "listen: [127.0.0.1:1, 127.0.0.1:2]\n")
	r.reload()
	assert.Equal(t, []string{`level=INFO msg=reloaded changed=[]`}, r.lines())
	assert.Empty(t, r.srv.take())

	r.write("listen:\n  - {address: \"tcp://127.0.0.1:2\", allow: [ping]}\n  - 127.0.0.1:1\n  - 127.0.0.1:3\n" +
		"limits: {max_hashes: 5, max_memory: 1GiB, max_account: 1MiB}\ndrain_delay: 1s\ndrain_timeout: 3s\nloops: 2\npool: {tp_size: 1}\npools: {a: {}}\nlog: {level: warn, format: json}\n")
	for range 2 {
		r.reload()
		lines := r.lines()
		assert.Equal(t, `level=WARN msg="some changes need a restart" fields="[listen loops limits.max_account log.format]"`, lines[len(lines)-1])
	}
	assert.Equal(t, []string{"pools", "tcp://127.0.0.1:2", "limits"}, r.srv.take(), "once")
	assert.Equal(t, 5, r.srv.limits.MaxHashes)
	_, maxMemory, _ := r.pools.services.memory.Usage()
	assert.EqualValues(t, 1<<30, maxMemory)
	require.Len(t, r.srv.pools, 2)
	assert.Equal(t, "a", r.srv.pools[1].Name)
	assert.Equal(t, []string{"ping"}, r.srv.settings["tcp://127.0.0.1:2"].Rules.Anonymous.Names())
	assert.Equal(t, stopTimes{delay: time.Second, timeout: 3 * time.Second}, r.stopTimes())
	assert.Equal(t, slog.LevelWarn, r.level.Level())
}

// A configuration that is wrong anywhere changes nothing.
func TestReloadOfAWrongConfiguration(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "t.yaml")
	writeAt(t, tokens, "tokens: [{name: a, token: 0123456789abcdef, allow: all}]\n", 1)
	entry := "listen: [{address: 127.0.0.1:1, tokens: " + tokens + "}]\n"
	r := newTestReloader(t, entry+"pools: {b: {}}\n")
	for _, test := range []struct{ yaml, tokens, want string }{
		{"drain_timeout: 3s\nlog: {level: trace}\n", "", `:2:14: log.level: \"trace\" is not one of debug, info, warn, error`},
		{entry + "drain_timeout: 3s\npools: {b: {}, c: {vllm: 0.1}}\n", "", `:3:26: pools.c.vllm: vLLM 0.1 is older than 0.24.0`},
		{"listen: [{address: 127.0.0.1:1, tokens: /no/such}]\ndrain_timeout: 3s\n", "", `listen[0].tokens: cannot read it: open /no/such: no such file or directory`},
		{entry + "drain_timeout: 3s\n", "tokens: [{name: a, token: short, allow: all}]\n", tokens + `:1:27: tokens[0].token: has 5 bytes, must have 16 to 255`},
	} {
		if test.tokens != "" {
			writeAt(t, tokens, test.tokens, 2)
		}
		r.write(test.yaml)
		r.reload()
		lines := r.lines()
		require.Len(t, lines, 1, lines)
		assert.Contains(t, lines[0], `level=ERROR msg="not reloaded" error="`)
		assert.Contains(t, lines[0], test.want)
		assert.Equal(t, stopTimes{timeout: 10 * time.Second}, r.stopTimes())
		writeAt(t, tokens, "tokens: [{name: a, token: 0123456789abcdef, allow: all}]\n", 1)
	}
	assert.Empty(t, r.srv.take())

	require.NoError(t, os.Remove(r.file))
	require.NoError(t, syscall.Mkfifo(r.file, 0o600))
	r.lines()
	r.reload()
	assert.Contains(t, r.lines()[0], "cannot read the configuration: "+r.file+" is not a regular file")
}

// A file that changes by itself is read, with what uses it; a wrong one is left until it changes.
func TestPoll(t *testing.T) {
	dir := t.TempDir()
	const good, other = "tokens: [{name: a, token: 0123456789abcdef, allow: all}]\n", "tokens: [{name: b, token: 0123456789abcdef, allow: all}]\n"
	one, two := filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
	writeAt(t, one, good, 1)
	writeAt(t, two, good, 1)
	r := newTestReloader(t, "listen:\n  - {address: 127.0.0.1:1, tokens: "+one+"}\n  - {address: 127.0.0.1:2, tokens: "+two+"}\n  - 127.0.0.1:3\n")
	polls := func() []string {
		for range 3 {
			r.poll()
		}
		return r.lines()
	}
	assert.Empty(t, polls())
	assert.Empty(t, r.srv.take())

	writeAt(t, one, other, 2)
	assert.Equal(t, []string{"level=INFO msg=reloaded changed=[" + one + "]"}, polls())
	assert.Equal(t, []string{"127.0.0.1:1"}, r.srv.take())
	assert.Equal(t, "b", r.srv.settings["127.0.0.1:1"].Rules.FindToken([]byte("0123456789abcdef")).Name)

	wrong := func(second int64) []string {
		writeAt(t, one, "tokens: [{name: b, token: 0123456789, allow: all}]\n", second)
		return polls()
	}
	line := []string{`level=ERROR msg="not reloaded" listen=127.0.0.1:1 error="` + one + `:1:27: tokens[0].token: has 10 bytes, must have 16 to 255"`}
	assert.Equal(t, line, wrong(3), "once")
	assert.Empty(t, polls())
	assert.Empty(t, wrong(4), "as wrong as before")
	assert.Empty(t, r.srv.take())

	writeAt(t, two, other, 5)
	assert.Equal(t, []string{"level=INFO msg=reloaded changed=[" + two + "]"}, polls(), "the other listener is not kept waiting")
	assert.Equal(t, []string{"127.0.0.1:2"}, r.srv.take())

	require.NoError(t, os.Remove(one))
	lines := polls()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "cannot read it: open "+one)
	writeAt(t, one, good, 6)
	assert.Equal(t, []string{"level=INFO msg=reloaded changed=[" + one + "]"}, polls())
	assert.Equal(t, []string{"127.0.0.1:1"}, r.srv.take())
}

// A certificate and its key change in two steps; in between the old ones stay.
func TestPollCertificates(t *testing.T) {
	dir := t.TempDir()
	ca := certtest.NewCA("ca")
	month := time.Now().Add(30 * 24 * time.Hour)
	cert, key := certtest.WriteFiles(dir, "server", ca.LeafUntil(month, "a"))
	r := newTestReloader(t, "listen: [{address: \"tls://127.0.0.1:1\", tls: {cert: "+cert+", key: "+key+"}}]\n")
	newCert, newKey := certtest.WriteFiles(t.TempDir(), "server", ca.LeafUntil(month, "a"))

	require.NoError(t, os.Rename(newCert, cert))
	r.poll()
	r.poll()
	lines := r.lines()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "tls.key: "+key+": tls: private key does not match public key")
	assert.Empty(t, r.srv.take())
	require.NoError(t, os.Rename(newKey, key))
	r.poll()
	r.poll()
	assert.Equal(t, []string{`level=INFO msg=reloaded changed="[` + cert + " " + key + `]"`}, r.lines())
	assert.Equal(t, []string{"tls://127.0.0.1:1"}, r.srv.take())
}

// A file that hangs, as in a remote file system, is said: no token is revoked meanwhile.
func TestFileThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs logtest.Buffer
		r := &reloader{logger: slog.New(slog.NewTextHandler(&logs, nil))}
		r.recovering(func() { time.Sleep(slowRead - time.Millisecond) })
		require.Empty(t, logs.String())
		r.recovering(func() { time.Sleep(time.Minute) })
		require.Equal(t, 1, strings.Count(logs.String(), "has not been read for 5s"))
	})
}

// Files that others may change are said at the start, by --check, when they change, and at each reload.
func TestFilesOfOthers(t *testing.T) {
	dir := t.TempDir()
	tokens, peers := filepath.Join(dir, "tokens.yaml"), filepath.Join(dir, "peers")
	writeAt(t, tokens, "tokens: [{name: a, token: 0123456789abcdef, allow: all}]\n", 1)
	writeAt(t, peers, "0123456789abcdef\n", 1)
	require.NoError(t, os.Chmod(tokens, 0o602))
	require.NoError(t, os.Chmod(peers, 0o602))
	const change = " may be changed by everybody (mode 0602): chmod o-w"
	config := "listen: [{address: 127.0.0.1:0, tokens: " + tokens + "}]\nrouter: {models: [{name: m, block_size: 16}], peer_token_file: " + peers + "}\n"
	check := hitline(t, "", "serve", "--check", "--config", configFile(t, config))
	assert.Equal(t, exitDone, check.code)
	assert.Contains(t, check.stderr, "listen[0].tokens: "+tokens+change)
	assert.Contains(t, check.stderr, "router.peer_token_file: "+peers+change)
	s := startServe(t, config) // with another address
	assert.Contains(t, s.log.String(), peers+change)

	r := newTestReloader(t, config)
	r.reload()
	lines := strings.Join(r.lines(), "\n")
	assert.Contains(t, lines, tokens+change)
	assert.Contains(t, lines, peers+change)
	r.poll()
	writeAt(t, tokens, "tokens: [{name: b, token: 0123456789abcdef, allow: all}]\n", 2)
	r.poll()
	r.poll()
	assert.Contains(t, strings.Join(r.lines(), "\n"), tokens+change)
}

// A file of a listener that is wrong does not keep the others from being read: a token is revoked though the certificate
// is wrong, and the other way round.
func TestPollOfParts(t *testing.T) {
	dir := t.TempDir()
	ca, next := certtest.NewCA("first"), certtest.NewCA("next")
	month := time.Now().Add(30 * 24 * time.Hour)
	cert, key := certtest.WriteFiles(dir, "server", ca.LeafUntil(month, "a"))
	clients, tokens := ca.WriteFile(filepath.Join(dir, "clients.crt")), filepath.Join(dir, "tokens.yaml")
	writeAt(t, tokens, "tokens: [{name: a, token: 0123456789abcdef, allow: all}]\n", 1)
	r := newTestReloader(t, "listen: [{address: \"tls://127.0.0.1:1\", tokens: "+tokens+", tls: {cert: "+cert+", key: "+key+", client_ca: "+clients+"}}]\n")
	polls := func() string {
		r.poll()
		r.poll()
		return strings.Join(r.lines(), "\n")
	}
	settings := func() server.Settings { return r.srv.settings["tls://127.0.0.1:1"] }
	token := func() bool { return settings().Rules.FindToken([]byte("0123456789abcdef")) != nil }

	require.NoError(t, os.WriteFile(cert, nil, 0o600))
	assert.Contains(t, polls(), "no certificate in PEM")
	writeAt(t, tokens, "tokens: []\n", 2)
	assert.Contains(t, polls(), "reloaded changed=["+tokens+"]")
	assert.False(t, token())
	assert.True(t, settings().TLS.ClientCAs.Equal(ca.Pool()))
	assert.Len(t, settings().TLS.Certificates, 1)

	writeAt(t, tokens, "no tokens\n", 3)
	assert.Contains(t, polls(), "not reloaded")
	next.WriteFile(clients)
	assert.Contains(t, polls(), "reloaded changed=["+clients+"]")
	assert.True(t, settings().TLS.ClientCAs.Equal(next.Pool()))
	certtest.WriteFiles(dir, "server", next.LeafUntil(month, "a"))
	assert.Contains(t, polls(), "reloaded changed=\"["+cert+" "+key+"]\"")
	assert.True(t, settings().TLS.ClientCAs.Equal(next.Pool()))
	assert.False(t, token())
	writeAt(t, tokens, "tokens: [{name: a, token: 0123456789abcdef, allow: all}]\n", 4)
	polls()
	assert.True(t, token())
}

// awaitLine reads the log until a line has the message, and returns it.
func awaitLine(t *testing.T, log *bufio.Scanner, message string) string {
	t.Helper()
	awaitLog(t, log, message)
	return log.Text()
}

// A process reads its configuration again at SIGHUP.
func TestReloadOfAProcess(t *testing.T) {
	const base = "log: {format: json}\npool: {tp_size: 1}\n"
	cmd, reader, writer := startProgram(t, base)
	require.NoError(t, writer.Close())
	log := bufio.NewScanner(reader)
	address := readyLine(t, log)
	file := cmd.Args[len(cmd.Args)-1]
	require.NoError(t, os.WriteFile(file, []byte(base+"drain_timeout: 17s\nmax_pools: 3\n"), 0o600))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	assert.Contains(t, awaitLine(t, log, "reloaded"), `"changed":["drain_timeout"]`)
	assert.Contains(t, awaitLine(t, log, "some changes need a restart"), `"fields":["max_pools"]`)

	require.NoError(t, os.WriteFile(file, []byte(base+"loop: 1\n"), 0o600))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	assert.Contains(t, awaitLine(t, log, "not reloaded"), file+":3:1: loop: unknown field; did you mean loops?")
	assert.Equal(t, exitDone, hitline(t, "", "ping", "--connect", address).code)

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	assert.Contains(t, awaitLine(t, log, "stopping"), `"drain_timeout":"17s"`)
	awaitLog(t, log, "stopped")
	assert.NoError(t, cmd.Wait())
}

// A signal to reload before the server is ready does not end it, and counts once it is.
func TestReloadWhileStarting(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	peer := strings.TrimPrefix(listenAndServe(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<10))
		close(asked)
		<-answer
	}), "tcp://")
	file := configFile(t, "log: {format: json}\nrouter: {peers: [\"http://"+peer+"\"], models: [{name: m, block_size: 16}]}\n")
	cmd, reader, writer := startWith(t, "--listen", "tcp://127.0.0.1:0", "--config", file)
	require.NoError(t, writer.Close())
	<-asked
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	close(answer)
	log := bufio.NewScanner(reader)
	readyLine(t, log)
	awaitLine(t, log, "reloaded")
}

// A tokens file that changes takes effect without a signal, also for connections that are open. No
// line of the log, and nothing that --check prints, has a token.
func TestTokensOfAProcess(t *testing.T) {
	const secret, next = "a-token-that-nobody-may-see", "another-token-of-that-kind"
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.yaml")
	writeAt(t, tokens, "tokens: [{name: a, token: "+secret+", allow: [ping]}]\n", 1)
	file := configFile(t, "listen: [{address: \"tcp://127.0.0.1:0\", allow: [], tokens: "+tokens+"}]\nlog: {level: debug, format: json}\n")
	cmd, reader, writer := startWith(t, "--config", file)
	require.NoError(t, writer.Close())
	var log strings.Builder
	lines := bufio.NewScanner(io.TeeReader(reader, &log))
	address := readyLine(t, lines)
	const done = "\x01\x01\x01"
	send := func(conn net.Conn, request string, n int) string {
		_, err := io.WriteString(conn, request)
		require.NoError(t, err)
		reply := make([]byte, n)
		_, err = io.ReadFull(conn, reply)
		require.NoError(t, err)
		return string(reply)
	}
	auth := func(token string) (net.Conn, string) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp://"))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn, send(conn, fmt.Sprintf("\x01\x04auth\x00%c%s", len(token), token), 3)
	}
	conn, reply := auth(secret)
	require.Equal(t, done, reply)
	_, reply = auth(next)
	require.NotEqual(t, done, reply)

	writeAt(t, filepath.Join(dir, "new"), "tokens: [{name: a, token: "+next+", allow: [ping]}]\n", 2)
	require.NoError(t, os.Rename(filepath.Join(dir, "new"), tokens))
	assert.Contains(t, awaitLine(t, lines, "reloaded"), `"changed":["`+tokens+`"]`)
	_, err := io.Copy(io.Discard, conn)
	require.NoError(t, err, "a connection whose token is gone is closed")
	_, reply = auth(secret)
	assert.NotEqual(t, done, reply)
	_, reply = auth(next)
	assert.Equal(t, done, reply)

	writeAt(t, tokens, "tokens: [{name: a, "+secret+": "+next+"}]\n", 3)
	awaitLog(t, lines, "not reloaded")
	_, reply = auth(next)
	assert.Equal(t, done, reply, "what it had")
	conn, _ = auth(next)
	writeAt(t, tokens, strings.Repeat("[", 250_000), 4) // would take the parser all memory, or all time
	awaitLog(t, lines, "not reloaded")
	writeAt(t, tokens, "tokens: []\n", 5)
	awaitLog(t, lines, "reloaded")
	_, err = io.Copy(io.Discard, conn)
	require.NoError(t, err, "a token is revoked after a file that is wrong")
	writeAt(t, tokens, "tokens: [{name: a, token: "+next+", expires: 2020-01-01T00:00:00Z, allow: all}]\n", 6)
	check := hitline(t, "", "serve", "--check", "--config", file)
	assert.Equal(t, exitDone, check.code)
	assert.Equal(t, "hitline: warning: "+tokens+":1:64: tokens[0].expires: has passed; the credential is not valid\n", check.stderr)

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	awaitLog(t, lines, "stopped")
	for _, text := range []string{secret, next} {
		assert.NotContains(t, log.String(), text)
		assert.NotContains(t, check.stdout+check.stderr, text)
	}
}
