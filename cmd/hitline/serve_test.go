package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/internal/buildinfo"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
)

// The defaults that the configuration documents are those of the server.
func TestDefaultLimits(t *testing.T) {
	cfg := config.Default()
	limits := server.DefaultLimits()
	limits.MaxMemory = 0 // by the machine: see TestMemoryAccount
	limits.MaxUnsent = 0 // is no setting
	assert.Equal(t, limits, serverLimits(cfg.Limits))
	assert.Equal(t, config.Listeners(api.DefaultListen), cfg.Listen)
}

// configFile writes a configuration file and returns its path.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hitline.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// --check of what --check has printed prints the same.
func TestCheck(t *testing.T) {
	for name, args := range map[string][]string{
		"defaults": nil,
		"flags":    {"--listen", "tcp://127.0.0.1:0", "--listen", "tcp://[::1]:1234", "--listen", "ipc:///run/a b", "--loops", "2", "--block-size", "32", "--backend", "memory"},
		"file": {"--config", configFile(t, `
pool:
  model_name: "org/model: a"
  retention_interval: 0
  tp_size: 2
  groups:
    - {kind: full_attention, block_size: 32}
    - {kind: sliding_window, block_size: 16, sliding_window: 1024, is_eagle_group: true}
    - {kind: mamba, block_size: 64, mamba_cache_mode: align, variant: 3, uniform: true}
ipc_mode: 0660
backend: {memory: {max_bytes: 3000KB, max_entries: 5}}
limits: {idle_timeout: 90s, max_message: 1000}
log: {level: debug, format: json}
`)},
	} {
		t.Run(name, func(t *testing.T) {
			first := hitline(t, "", append([]string{"serve", "--check"}, args...)...)
			require.Equal(t, exitDone, first.code, first.stderr)
			assert.Empty(t, first.stderr)
			assert.Contains(t, first.stdout, "\nbackend:\n  memory:\n")
			again := hitline(t, "", "serve", "--check", "--config", configFile(t, first.stdout))
			assert.Equal(t, first, again)
		})
	}
	got := hitline(t, "", "serve", "--check", "--block-size", "32").stdout
	assert.Contains(t, got, "  hash_block_size: 32\n  scheduler_block_size: 32\n")
	assert.Contains(t, got, "  groups:\n    - kind: full_attention\n      block_size: 32\n")
}

func TestConfigurationErrors(t *testing.T) {
	groups := strings.Repeat("    - {kind: full_attention, block_size: 16}\n", 65)
	for _, test := range []struct{ text, want string }{
		{"loop: 1\n", ":1:1: loop: unknown field; did you mean loops?"},
		{"backend:\n  memory:\n    max_bytes: 5\n", ":3:16: backend.memory.max_bytes: max_bytes is 5, the least is 2097152 (2MiB)"},
		{"pool:\n  groups:\n" + groups, ":2:3: pool.groups: not supported: a pool of 65 groups; at most 64 are served"},
	} {
		path := configFile(t, test.text)
		for _, check := range [][]string{nil, {"--check"}} {
			got := hitline(t, "", append([]string{"serve", "--config", path}, check...)...)
			assert.Equal(t, result{exitUsage, "", "hitline: " + path + test.want + "\n"}, got)
		}
	}
	got := hitline(t, "", "serve", "--config", "/no/such.yaml")
	assert.Equal(t, result{exitUsage, "", "hitline: cannot read the configuration: open /no/such.yaml: no such file or directory\n"}, got)
	t.Setenv("HITLINE_LIMITS_MAX_HASH", "1")
	got = hitline(t, "", "serve")
	assert.Equal(t, result{exitUsage, "", "hitline: HITLINE_LIMITS_MAX_HASH: no such variable; did you mean HITLINE_LIMITS_MAX_HASHES?\n"}, got)
}

func TestBindFailure(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	got := hitline(t, "", "serve", "--listen", "tcp://"+taken.Addr().String())
	assert.Equal(t, exitFailed, got.code)
	assert.Empty(t, got.stdout)
	last := got.stderr[strings.LastIndex(strings.TrimSuffix(got.stderr, "\n"), "\n")+1:]
	assert.Equal(t, "hitline: "+taken.Addr().String()+" is in use; --listen takes another\n", last)
}

// readyLine waits for the ready line of a server that logs JSON, and returns the
// address that it is bound to.
func readyLine(t *testing.T, log *bufio.Scanner) string {
	t.Helper()
	r := awaitReadyLine(t, log)
	require.Len(t, r.Listen, 1)
	return r.Listen[0]
}

// awaitReadyLine is readyLine with all addresses.
func awaitReadyLine(t *testing.T, log *bufio.Scanner) (r ready) {
	t.Helper()
	for r.Msg != "ready" {
		require.True(t, log.Scan(), "the server ended without being ready")
		require.NoError(t, json.Unmarshal(log.Bytes(), &r), log.Text())
	}
	return r
}

// Every command is a client of a server in this process.
func TestEndToEnd(t *testing.T) {
	s := startServe(t, "pool: {tp_size: 2}\n")
	var prompt strings.Builder
	for i := range 8 {
		fmt.Fprintf(&prompt, "%064x\n", i+1)
	}
	all := prompt.String()
	half := all[:4*65]
	do := func(line, stdin string) result {
		return hitline(t, stdin, append(strings.Fields(line), "--connect", s.address)...)
	}
	find := "lookup --tokens 128 --hashes-file -"
	for _, step := range []struct {
		line, stdin string
		want        result
	}{
		{find, all, result{exitDone, "0\n", ""}},
		{"store --tp-rank 0 --hashes-file -", all, result{exitDone, "stored 8\n", ""}},
		{find, all, result{exitDone, "0\n", ""}}, // the other rank is still without
		{"store --tp-rank 1 --hashes-file -", half, result{exitDone, "stored 4\n", ""}},
		{find, all, result{exitDone, "64\n", ""}},
		{"evict --tp-rank 0 --hashes-file -", all[2*65 : 3*65], result{exitDone, "evicted 1\n", ""}},
		{find, all, result{exitDone, "32\n", ""}},
		{"reset --yes --tp-rank 1", "", result{exitDone, "done\n", ""}},
		{find, all, result{exitDone, "0\n", ""}},
		{"store --tp-rank 1 --hashes-file -", half, result{exitDone, "stored 4\n", ""}},
		{find, all, result{exitDone, "32\n", ""}},
		{find + " --json", all, result{exitDone, `{"hit_tokens":32,"start_tokens":0,"num_tokens":128,"hashes":8}` + "\n", ""}},
		{"reset --yes", "", result{exitDone, "done\n", ""}},
		{find, all, result{exitDone, "0\n", ""}},
	} {
		assert.Equal(t, step.want, do(step.line, step.stdin), step.line)
	}
	assert.Equal(t, exitDone, do("ping", "").code)
	for line, stdin := range map[string]string{
		"lookup --tokens 100 --hashes-file -":           all, // not a multiple of the block
		"store --group 1 --hashes-file -":               all,
		"store --tp-rank 2 --hashes-file -":             all,
		"evict --pp-rank 1 --hashes-file -":             all,
		"reset --yes --tp-rank 2":                       "",
		"reset --yes --group 1 --json":                  "",
		"store --group 65535 --hashes-file - --json":    all,
		"evict --pcp-rank 65535 --hashes-file - --json": all,
	} {
		assert.Equal(t, exitFailed, do(line, stdin).code, line)
	}
	assert.Regexp(t, `(?m)^vllm +0\.24\.0$`, do("stat", "").stdout)
	stat := do("stat --json", "")
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(stat.stdout), &fields))
	assert.Equal(t, buildinfo.Read().Version, fields["version"])
	assert.EqualValues(t, 0, fields["entries"])
	assert.EqualValues(t, 16, fields["stored"])

	s.stop()
	<-s.done
	assert.Contains(t, s.log.String(), `"msg":"stopped"`)
	assert.Equal(t, exitNoConnection, do("ping", "").code)
}

// startReady starts hitline as a process of its own and waits until it is ready.
func startReady(t *testing.T) (cmd *exec.Cmd, log *bufio.Scanner, address string) {
	t.Helper()
	cmd, reader, writer := startProgram(t, "log: {format: json}\ndrain_timeout: 1m\n")
	require.NoError(t, writer.Close())
	log = bufio.NewScanner(reader)
	return cmd, log, readyLine(t, log)
}

// startProgram starts hitline as a process of its own, and returns both ends of the
// pipe that it logs into.
func startProgram(t *testing.T, yaml string) (cmd *exec.Cmd, reader, writer *os.File) {
	t.Helper()
	return startWith(t, "--listen", "tcp://127.0.0.1:0", "--config", configFile(t, yaml))
}

// startWith is startProgram with all flags of serve.
func startWith(t *testing.T, flags ...string) (cmd *exec.Cmd, reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = reader.Close(), writer.Close() })
	cmd = programIn(t, ":", append([]string{"serve"}, flags...)...)
	cmd.Stderr = writer
	require.NoError(t, cmd.Start())
	return cmd, reader, writer
}

// programIn returns hitline as a process that is to be started, in which a shell runs a command first. The test's end kills it.
func programIn(t testing.TB, shell string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command("/bin/sh", append([]string{"-c", shell + ` && exec "$0" "$@"`, self}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	t.Cleanup(func() {
		if cmd.Process != nil {
			_, _ = cmd.Process.Kill(), cmd.Wait()
		}
	})
	return cmd
}

// beginPing begins a request and leaves it unfinished, so that draining waits.
func beginPing(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	// A whole ping shows that the server has taken the connection; the next one
	// begins in the same write.
	_, err = io.WriteString(conn, "\x01\x04ping\x00\x00\x01\x04pi")
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, len("\x01\x01\x01\x00\x00")))
	require.NoError(t, err)
	return conn
}

// awaitLog reads the log until a line has the message.
func awaitLog(t *testing.T, log *bufio.Scanner, message string) {
	t.Helper()
	for log.Scan() {
		if strings.Contains(log.Text(), `"msg":"`+message+`"`) {
			return
		}
	}
	t.Fatalf("the server ended without logging %q", message)
}

// The last line but one has what was counted since the start, also without metrics. A prompt that is asked about until the end
// is among it.
func TestLogEnd(t *testing.T) {
	cmd, log, address := startReady(t)
	hashes := strings.Repeat("ab", 32) + "\n"
	require.Equal(t, exitDone, hitline(t, hashes, "store", "--hashes-file", "-", "--connect", address).code)
	require.Equal(t, "16\n", hitline(t, hashes, "lookup", "--tokens", "32", "--hashes-file", "-", "--connect", address).stdout)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	line := awaitLine(t, log, "summary since the start")
	for _, want := range []string{`"lookups":1,"prompts":1,"hit_share":1,"no_answer_share":0,"p50":"`, `"pools":1`} {
		assert.Contains(t, line, want)
	}
	awaitLog(t, log, "stopped")
	require.NoError(t, cmd.Wait())
}

func TestSignalDrains(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd, log, address := startReady(t)
			conn := beginPing(t, address)
			require.NoError(t, cmd.Process.Signal(sig))
			awaitLog(t, log, "stopping")
			_, err := io.WriteString(conn, "ng\x00\x00") // the rest of the request
			require.NoError(t, err)
			reply, err := io.ReadAll(conn)
			require.NoError(t, err)
			assert.Equal(t, "\x01\x01\x01\x00\x00", string(reply), "the request in flight is answered")
			awaitLog(t, log, "stopped")
			assert.False(t, log.Scan(), log.Text())
			assert.NoError(t, cmd.Wait())
		})
	}
}

// The reader of the log may end first, as tee does at the terminal's SIGINT. A request in
// flight is answered all the same.
func TestSignalDrainsWithoutLog(t *testing.T) {
	cmd, reader, writer := startProgram(t, "log: {format: json}\ndrain_timeout: 1m\n")
	require.NoError(t, writer.Close())
	address := readyLine(t, bufio.NewScanner(reader))
	conn := beginPing(t, address)
	require.NoError(t, reader.Close())
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Eventually(t, func() bool { // no new connections once it has started to stop
		c, err := net.Dial("tcp", strings.TrimPrefix(address, "tcp://"))
		if err == nil {
			c.Close()
		}
		return err != nil
	}, 20*time.Second, time.Millisecond)
	_, err := io.WriteString(conn, "ng\x00\x00") // the rest of the request
	require.NoError(t, err)
	reply, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "\x01\x01\x01\x00\x00", string(reply), "the request in flight is answered")
	assert.NoError(t, cmd.Wait())
}

// timeout(1) sends a signal to the program and to its group, microseconds apart. They are one.
func TestTwoSignalsAreOne(t *testing.T) {
	for after, want := range map[time.Duration]error{0: nil, signalGrace - 1: nil, signalGrace: errSecondSignal} {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, 2)
			signals <- syscall.SIGTERM
			srv := &fakeServer{shutdown: func(context.Context) error {
				signals <- syscall.SIGTERM
				time.Sleep(after)
				signals <- syscall.SIGINT
				time.Sleep(time.Second) // the requests in flight
				return nil
			}}
			err := wait(t.Context(), srv, signals, func() stopTimes { return stopTimes{timeout: time.Minute} }, slog.New(slog.DiscardHandler))
			assert.ErrorIs(t, err, want, "%v", after)
			time.Sleep(time.Second) // the shutdown ends
		})
	}
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	cmd, log, address := startReady(t)
	beginPing(t, address)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	awaitLog(t, log, "stopping")
	time.Sleep(signalGrace)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.True(t, log.Scan())
	assert.Equal(t, "hitline: stopped at once by a second signal (terminated); requests may be unanswered", log.Text())
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	assert.Equal(t, exitFailed, exit.ExitCode())
}

// fakeServer is a runningServer that stops when the test says so.
type fakeServer struct {
	done     chan struct{}
	err      error
	drain    func(ctx context.Context, delay time.Duration) // nil: there is nothing to do
	shutdown func(ctx context.Context) error
}

func (s *fakeServer) Done() <-chan struct{} { return s.done }
func (s *fakeServer) Err() error            { return s.err }
func (s *fakeServer) Drain(ctx context.Context, delay time.Duration) {
	if s.drain != nil {
		s.drain(ctx, delay)
	}
}
func (s *fakeServer) Shutdown(ctx context.Context) error { return s.shutdown(ctx) }

func TestServerThatStopsByItself(t *testing.T) {
	for want, cause := range map[string]error{
		"the server stopped by itself: out of file descriptors": errors.New("out of file descriptors"),
		"the server stopped by itself, for no known reason":     nil,
	} {
		srv := &fakeServer{done: make(chan struct{}), err: cause}
		close(srv.done)
		err := wait(context.Background(), srv, nil, nil, slog.New(slog.DiscardHandler))
		assert.EqualError(t, err, want)
		assert.Equal(t, exitFailed, exitCode(err))
	}
}

// Draining ends with drain_timeout, and that is no failure.
func TestDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		srv := &fakeServer{shutdown: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGTERM
		started := time.Now()
		var drained time.Duration
		srv.drain = func(ctx context.Context, delay time.Duration) {
			assert.Equal(t, 3*time.Second, delay)
			<-ctx.Done()
			drained = time.Since(started)
		}
		times := func() stopTimes { return stopTimes{3 * time.Second, 7 * time.Second} }
		require.NoError(t, wait(t.Context(), srv, signals, times, slog.New(slog.NewTextHandler(&log, nil))))
		assert.Equal(t, 9*time.Second, drained, "ZMTP clients leave a second for others")
		assert.Equal(t, 10*time.Second, time.Since(started))
		assert.Contains(t, log.String(), `level=WARN msg="stopped before all requests were answered"`)
	})
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&out, "text", logLevel("warn"))
	log.Info("a")
	log.Warn("b")
	assert.Regexp(t, `^time=\S+ level=WARN msg=b\n$`, out.String())
	out.Reset()
	newLogger(&out, "json", logLevel("debug")).Debug("c")
	assert.Regexp(t, `^\{"time":".*","level":"DEBUG","msg":"c"\}\n$`, out.String())
}

// A signal ends what is loaded before the server is ready. A second one does not wait for a load that hangs.
func TestSignalWhileLoading(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	stopped, err := untilSignal(t.Context(), func(context.Context) error { return io.EOF }, nil, quiet)
	assert.Equal(t, io.EOF, err)
	assert.False(t, stopped)

	signals := make(chan os.Signal)
	stopped, err = untilSignal(t.Context(), func(ctx context.Context) error {
		signals <- syscall.SIGTERM
		<-ctx.Done()
		return ctx.Err()
	}, signals, quiet)
	assert.NoError(t, err)
	assert.True(t, stopped)

	synctest.Test(t, func(t *testing.T) {
		signals, released := make(chan os.Signal), make(chan struct{})
		defer close(released)
		_, err := untilSignal(t.Context(), func(context.Context) error {
			signals <- syscall.SIGTERM
			time.Sleep(signalGrace)
			signals <- syscall.SIGTERM
			<-released
			return nil
		}, signals, quiet)
		assert.ErrorIs(t, err, errSecondSignal)
	})
}
