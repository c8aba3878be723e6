//go:build linux

package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/bench/load/loadtest"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
)

// faulty starts a server and returns its address.
func faulty(t *testing.T, s *loadtest.Server) string {
	t.Helper()
	addr, err := s.Start()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return addr
}

// runLoad runs hitbench run for a few requests.
func runLoad(ctx context.Context, args ...string) result {
	small := []string{"run", "--entries", "100", "--warmup", "0s"}
	return runWith(ctx, &fakeServer{}, append(small, args...)...)
}

func TestRun(t *testing.T) {
	addr := faulty(t, &loadtest.Server{})
	r := runLoad(t.Context(), "--connect", addr, "-n", "300", "--json", "-c", "2", "--hashes", "4-20")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Empty(t, r.stderr, "no terminal, no live line")
	require.Equal(t, 1, strings.Count(r.stdout, "\n"))
	var got load.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.EqualValues(t, 300, got.Requests)
	assert.Equal(t, []any{addr, wire.Raw, "closed", 2, 1, "4-20", 0.9, workload.MissRandom}, []any{
		got.Connect, got.Dialect, got.Mode, got.Connections, got.Pipeline, got.Hashes, got.HitShare, got.MissAt,
	})

	r = runLoad(t.Context(), "--connect", addr, "--duration", "100ms", "--rate", "1000")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "load         open loop, 1 connections, 1 under way on each\n")
	assert.Contains(t, r.stdout, "\nunsent       ")
	assert.Contains(t, r.stdout, "■\n", "a histogram")

	r = runLoad(t.Context(), "--connect", addr, "--duration", "100ms", "--rate", "1000,2000")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "\n2000 ")
	assert.NotContains(t, r.stdout, "■", "each rate has its own latencies")
}

// Every fault ends with its exit code, whatever came before.
func TestRunFaults(t *testing.T) {
	for fault, want := range map[loadtest.Fault]int{
		loadtest.None: exitDone, loadtest.OffByOne: exitBad, loadtest.NotWhole: exitBad, loadtest.Short: exitBad,
		loadtest.Long: exitBad, loadtest.Frames: exitBad, loadtest.Done: exitBad, loadtest.Garbage: exitBad,
		loadtest.Refuses: exitBad, loadtest.Extra: exitBad, loadtest.Twice: exitBad, loadtest.Swaps: exitBad,
		loadtest.Forgets: exitBad, loadtest.Keeps: exitBad, loadtest.NoStore: exitBad, loadtest.LastTwice: exitBad,
		loadtest.Silent: exitLost, loadtest.Late: exitLost, loadtest.Closes: exitLost, loadtest.Half: exitLost,
	} {
		t.Run(string(fault), func(t *testing.T) {
			addr := faulty(t, &loadtest.Server{Fault: fault, Honest: 5, Delay: time.Hour})
			args := []string{"--connect", addr, "-n", "400", "--hashes", "2-20", "--pipeline", "4", "--json", "--stores", "0.1", "--evicts", "0.1", "--hit-share", "0.5"}
			if want == exitLost {
				args = append(args, "--timeout", "200ms")
			}
			r := runLoad(t.Context(), args...)
			assert.Equal(t, want, r.code, r.stderr)
			assert.LessOrEqual(t, strings.Count(r.stdout, "\n"), 1)
			assert.LessOrEqual(t, strings.Count(r.stderr, "expected"), 2*maxDescribed)
			assert.Equal(t, fault == loadtest.None, r.stderr == "")
		})
	}
}

func TestRunWrong(t *testing.T) {
	addr := faulty(t, &loadtest.Server{Fault: loadtest.OffByOne, Honest: 5})
	r := runLoad(t.Context(), "--connect", addr, "-n", "400", "--json", "--hit-share", "1", "--hashes", "10")
	assert.Equal(t, exitBad, r.code)
	var got load.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.Greater(t, got.Wrong, int64(maxDescribed))
	assert.False(t, got.Partial)
	assert.Equal(t, maxDescribed, strings.Count(r.stderr, "lookup of 10 hashes of which the first 10 are stored: expected 160 tokens, got 176 tokens\n"))
	assert.Contains(t, r.stderr, "hitbench: "+addr+": request 20 on connection 0, ") // behind ten stores
	assert.Equal(t, 1, strings.Count(r.stderr, "further problems of this kind"))
	assert.Contains(t, r.stderr, " answers are wrong, 0 requests were refused; 400 requests were measured\n")
}

func TestRunUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown flag: --qps":                                  {"--qps", "1"},
		"a dialect \"http\"; there are raw, zmtp":              {"--dialect", "http"},
		"--start and --connect name two servers":               {"--start", "--connect", "tcp://h:1"},
		"--hitline only has a meaning with --start":            {"--hitline", "x"},
		"--server-cores only has a meaning with --start":       {"--server-cores", "0"},
		"core 0 is the client's and the server's; give each":   {"--start", "--client-cores", "0", "--server-cores", "0"},
		"--client-cores: ":                                     {"--client-cores", "0,x"},
		"core 999 is not among those":                          {"--client-cores", "999"},
		"--loops only has a meaning with --start":              {"--loops", "1"},
		"--requests and --duration both say when to end":       {"-n", "1", "--duration", "1s"},
		"--requests -5; give more than 0":                      {"-n", "-5"},
		"--loops -1; give 0 or more":                           {"--start", "--loops", "-1"},
		"--hashes \"many\"; write a number such as 64, or a s": {"--hashes", "many"},
		"--hashes \"0\"; write a number such as 64":            {"--hashes", "0"},
		"--connections 0; give more than 0":                    {"--connections", "0"},
		"--timeout 0s; give more than 0":                       {"--timeout", "0"},
		"--config describes the whole pool":                    {"--start", "--config", "x", "--block-size", "1"},
		"--block-size only has a meaning with --start":         {"--block-size", "16"},
		"--connect: \"udp://h:1\": unknown scheme":             {"--connect", "udp://h:1"},
		"half of them at most":                                 {"--stores", "0.9"},
		"a miss at \"end\"":                                    {"--miss-at", "end"},
	} {
		r := runLoad(t.Context(), args...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, want)
		assert.Empty(t, r.stdout)
		assert.Equal(t, 1, strings.Count(withoutHint(r.stderr), "\n"), r.stderr)
	}
}

func TestRunNoConnection(t *testing.T) {
	r := runLoad(t.Context(), "--connect", "tcp://127.0.0.1:1", "--json")
	assert.Equal(t, exitLost, r.code)
	assert.Regexp(t, `^\{"error":".*connection refused","exit":3\}\n$`, r.stdout)
	assert.Contains(t, r.stderr, "connection refused")
}

func TestRunInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	addr := faulty(t, &loadtest.Server{Fault: loadtest.Silent, Honest: 50, OnSilence: stop})
	r := runLoad(ctx, "--connect", addr, "--json", "--timeout", "1h")
	assert.Equal(t, exitBad, r.code)
	assert.Equal(t, "hitbench: interrupted\n", r.stderr)
	var got load.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.True(t, got.Partial)
}

// --start starts a server of the pool that the flags describe, and stops it.
func TestRunStart(t *testing.T) {
	t.Setenv(asCommand, "1")
	r := runLoad(t.Context(), "--start", "--hitline", os.Args[0], "-n", "200", "--json", "--dialect", "zmtp")
	require.Equal(t, exitDone, r.code, r.stderr)
	var got load.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.EqualValues(t, 200, got.Requests)
	allowed, err := process.Cores()
	require.NoError(t, err)
	if p := process.Halves(allowed, process.SystemCPUs()); !p.Shared {
		assert.Equal(t, load.Cores{Client: p.Client, Server: p.Server, Pinned: true}, got.Cores, "half each")
	}
	assert.Equal(t, exitLost, runLoad(t.Context(), "--connect", got.Connect).code, "it has been stopped")

	r = runLoad(t.Context(), "--start", "--hitline", "/no/such")
	assert.Equal(t, exitUsage, r.code)
	r = runLoad(t.Context(), "--start", "--hitline", "/bin/false")
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "ended (exit status 1)")
}

func TestRunSignals(t *testing.T) {
	ended, children := signalled(t, syscall.SIGTERM, 1, "run", "--start", "--hitline", os.Args[0], "--duration", "1h", "--entries", "100")
	assert.Equal(t, end{exitBad, "hitbench: interrupted\n"}, ended)
	assert.Eventually(t, func() bool { return syscall.Kill(children[0], 0) != nil }, 20*time.Second, time.Millisecond)
}
