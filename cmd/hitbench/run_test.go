//go:build linux

package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
)

// serveMemory starts a server whose index has room for a number of entries, and returns its address.
func serveMemory(t *testing.T, maxEntries int64) string {
	t.Helper()
	return serve(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}, Memory: index.Config{MaxEntries: maxEntries}}).Addrs()[0]
}

// runLoad runs hitbench run for a few requests.
func runLoad(t *testing.T, args ...string) result {
	return hitbench(t, append([]string{"run", "--entries", "100", "--warmup", "0s"}, args...)...)
}

// loaded returns the report of a run.
func loaded(t *testing.T, r result) (got load.Report) {
	t.Helper()
	require.Equal(t, 1, strings.Count(r.stdout, "\n"), r.stdout)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	return got
}

func TestRun(t *testing.T) {
	addr := serveMemory(t, 0)
	r := runLoad(t, "--connect", addr, "-n", "300", "--json", "-c", "2", "--hashes", "20")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Empty(t, r.stderr, "no terminal, no live line")
	got := loaded(t, r)
	assert.EqualValues(t, 300, got.Requests)
	assert.Equal(t, []any{addr, "closed", 2, 1, 20, 0.9}, []any{got.Connect, got.Mode, got.Connections, got.Pipeline, got.Hashes, got.HitShare})

	r = runLoad(t, "--connect", addr, "--duration", "100ms", "--rate", "1000,2000")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "load         open loop, 1 connections, 1 under way on each\n")
	assert.Contains(t, r.stdout, "\n2000  ")
}

// A server that evicts what was stored answers wrongly.
func TestRunWrong(t *testing.T) {
	r := runLoad(t, "--connect", serveMemory(t, 500), "-n", "400", "--json", "--entries", "2000", "--hashes", "10")
	assert.Equal(t, exitBad, r.code)
	got := loaded(t, r)
	assert.Greater(t, got.Wrong, int64(maxDescribed))
	assert.False(t, got.Partial)
	assert.Equal(t, maxDescribed, strings.Count(r.stderr, "below what was stored; does the server evict?\n"))
	assert.Equal(t, 1, strings.Count(r.stderr, "further problems of this kind"))
	assert.Contains(t, r.stderr, " answers are wrong, 0 requests were refused; 400 requests were measured\n")
}

func TestRunUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown flag: --qps":                            {"--qps", "1"},
		"--start and --connect name two servers":         {"--start", "--connect", "tcp://h:1"},
		"--hitline only has a meaning with --start":      {"--hitline", "x"},
		"--requests and --duration both say when to end": {"-n", "1", "--duration", "1s"},
		"-5 requests; none may be negative":              {"-n", "-5"},
		"hitbench: 0 connections":                        {"--connections", "0"},
		"hitbench: a timeout of 0s":                      {"--timeout", "0"},
		"--connect: \"udp://h:1\": unknown scheme":       {"--connect", "udp://h:1"},
	} {
		r := runLoad(t, args...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, want)
		assert.Empty(t, r.stdout)
		assert.Equal(t, 1, strings.Count(withoutHint(r.stderr), "\n"), r.stderr)
	}
	r := runLoad(t, "--connect", "tcp://127.0.0.1:1", "--json")
	assert.Equal(t, exitLost, r.code)
	assert.Equal(t, `{"error":"no server at tcp://127.0.0.1:1 (connection refused); hitline serve starts one","exit":3}`+"\n", r.stdout)
}

// A server of another protocol is named in one line.
func TestRunOfAnotherProtocol(t *testing.T) {
	for reply, want := range map[string]result{
		"HTTP/1.1 400 Bad Request\r\n\r\n": {exitBad, "", "bad reply: reserved flag bits set (frame 0, flags 0x48, length 84): the peer speaks HTTP, which is for other ports"},
		"":                                 {exitLost, "", "closed by the server"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan struct{})
		go func() {
			defer close(served)
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				_, _ = conn.Read(make([]byte, 1<<16))
				_, _ = io.WriteString(conn, reply)
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn) // until the client closes: an early close would reset
				_ = conn.Close()
			}
		}()
		want.stderr = "hitbench: " + l.Addr().String() + ": " + want.stderr + "\n"
		assert.Equal(t, want, runLoad(t, "--connect", l.Addr().String()))
		require.NoError(t, l.Close())
		<-served
	}
}

// --start starts a server, and stops it.
func TestRunStart(t *testing.T) {
	t.Setenv(asCommand, "1")
	r := runLoad(t, "--start", "--hitline", os.Args[0], "-n", "200", "--json")
	require.Equal(t, exitDone, r.code, r.stderr)
	got := loaded(t, r)
	assert.EqualValues(t, 200, got.Requests)
	allowed, err := process.Cores()
	require.NoError(t, err)
	assert.Equal(t, process.Halves(allowed, process.SystemCPUs()), got.Placement, "half each")
	assert.Equal(t, exitLost, runLoad(t, "--connect", got.Connect).code, "it has been stopped")

	r = runLoad(t, "--start", "--hitline", "/no/such")
	assert.Equal(t, exitUsage, r.code)
	r = runLoad(t, "--start", "--hitline", "/bin/false")
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "ended (exit status 1)")
}

func TestRunSignals(t *testing.T) {
	ended, children := signalled(t, syscall.SIGTERM, 1, "run", "--start", "--hitline", os.Args[0], "--duration", "1h", "--entries", "100")
	assert.Equal(t, end{exitBad, "hitbench: interrupted\n"}, ended)
	assert.Eventually(t, func() bool { return syscall.Kill(children[0], 0) != nil }, 20*time.Second, time.Millisecond)
}
