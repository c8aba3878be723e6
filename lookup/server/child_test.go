package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
)

// childConfig is what a server in a process of its own is told.
type childConfig struct {
	Listen []string
	TLS    bool // Listen are addresses of TLS, with a certificate of an authority that only the child knows
	Limits Limits
	Files  uint64 // limit of open files, 0 as it is
	Hog    int    // files to open once it listens

	// Pool is the pool of the memory index, blocks16's if it has no block size. Clients may describe others.
	Pool       coordinator.Pool
	MaxEntries int64
	// Slow, if it is set, is how long a backend takes that holds nothing.
	Slow time.Duration
}

// service returns what the child serves.
func (c childConfig) service() (*lookup.Service, error) {
	if c.Pool.HashBlockSize != 0 {
		return lookup.NewService(lookup.ServiceConfig{Pool: c.Pool, Memory: index.Config{MaxBytes: 256 * mib, MaxEntries: c.MaxEntries}})
	}
	if c.Slow == 0 {
		return lookup.NewService(blocks16)
	}
	store := &lookuptest.KeyStore{Before: func(ctx context.Context, _ string, _ []string) error {
		select {
		case <-time.After(c.Slow):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	return lookup.NewService(lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: lookup.RemoteConfig{Timeout: lookuptest.Patience}})
}

const asChild = "HITLINE_TEST_CHILD"

// In a process that a test has started as a child, main is not reached.
func init() {
	text := os.Getenv(asChild)
	if text == "" {
		return
	}
	if err := runChild(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runChild serves until the standard input ends.
func runChild(text string) error {
	var cfg childConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	if cfg.Files != 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: cfg.Files, Max: cfg.Files}); err != nil {
			return err
		}
	}
	service, err := cfg.service()
	if err != nil {
		return err
	}
	var listeners []Listener
	for _, address := range cfg.Listen {
		listeners = append(listeners, Listener{Address: address})
		if cfg.TLS {
			listeners[len(listeners)-1].TLS = &tls.Config{Certificates: []tls.Certificate{certtest.NewCA("child").Leaf("localhost")}}
		}
	}
	serve := Config{Listeners: listeners, Loops: 2, Limits: cfg.Limits, AccountBytes: 64 << 10, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if service.Backend() == nil {
		serve.AcceptPool = func(pool coordinator.Pool) (*lookup.Service, error) {
			return lookup.NewService(lookup.ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 64 * mib}})
		}
	}
	server, err := New(service, serve)
	if err != nil {
		return err
	}
	if err := server.Start(context.Background()); err != nil {
		return err
	}
	var hogged []*os.File
	for range cfg.Hog {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		hogged = append(hogged, f)
	}
	fmt.Println(server.Addrs()[0])
	go func() {
		<-server.Done()
		if err := server.Err(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { // see child.held
		debug.FreeOSMemory()
		fmt.Println(lookuptest.HeapBytes(), runtime.NumGoroutine())
	}
	for _, f := range hogged {
		_ = f.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookuptest.Patience)
	defer cancel()
	return server.Shutdown(ctx)
}

// child is a server in a process of its own.
type child struct {
	cmd  *exec.Cmd
	addr string
	log  *bytes.Buffer // readable once it has ended
	in   io.WriteCloser
	out  *bufio.Reader
}

func startChild(t testing.TB, cfg childConfig) *child {
	t.Helper()
	text, err := json.Marshal(cfg)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	c := &child{cmd: exec.Command(self), log: new(bytes.Buffer)}
	c.cmd.Env = append(os.Environ(), asChild+"="+string(text))
	c.cmd.Stderr = c.log
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	c.out = bufio.NewReader(out)
	line, err := c.out.ReadString('\n')
	if err != nil {
		_ = c.cmd.Wait()
		t.Fatalf("the child did not start: %s", c.log)
	}
	c.addr = line[:len(line)-1]
	return c
}

// ends stops the child, which must still be well, and returns its log.
func (c *child) ends(t testing.TB) string {
	t.Helper()
	require.NoError(t, c.in.Close())
	err := c.cmd.Wait()
	require.NoError(t, err, c.log.String())
	return c.log.String()
}

// held returns the bytes of the child's heap that are in use, and its goroutines.
func (c *child) held(t testing.TB) (bytes, goroutines int) {
	t.Helper()
	_, err := io.WriteString(c.in, "\n")
	require.NoError(t, err)
	line, err := c.out.ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &bytes, &goroutines)
	require.NoError(t, err)
	return bytes, goroutines
}

// memory returns a line of the child's status in bytes: VmRSS is its resident
// memory, VmHWM the most that it was.
func (c *child) memory(t testing.TB, key string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	require.NoError(t, err)
	found := regexp.MustCompile(key + `:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, found, "%s", status)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n << 10
}
