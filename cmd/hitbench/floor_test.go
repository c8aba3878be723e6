//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/floor"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// serveAsHitline is what this test binary does as "hitline serve": a server whose
// hashes cover 16 tokens, whatever it is told.
func serveAsHitline() {
	pool := coordinator.Pool{HashBlockSize: 16}
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
	if err != nil {
		panic(err)
	}
	srv, err := server.New(service, server.Config{Listen: []string{"tcp://127.0.0.1:0"}})
	if err == nil {
		err = srv.Start(context.Background())
	}
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"listen\":[%q]}\n", srv.Addrs()[0])
	<-srv.Done()
}

// runFloor runs hitbench floor with this binary as either server.
func runFloor(t *testing.T, args ...string) result {
	t.Setenv(asCommand, "1")
	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr, dial: dial}
	small := []string{"floor", "--hashes", "20", "--entries", "1", "--max-cache", "1", "--rounds", "2", "--requests", "60", "--hitline", os.Args[0]}
	code := a.run(t.Context(), append(small, args...))
	return result{code, stdout.String(), stderr.String()}
}

func TestFloor(t *testing.T) {
	r := runFloor(t, "--json", "--pipeline", "5", "--seed", "9")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, 1, strings.Count(r.stdout, "\n"))
	var got floor.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.Equal(t, []int{20, 2, 60, 5, 0}, []int{got.Hashes, got.Rounds, got.Requests, got.Pipeline, got.Wrong})
	assert.EqualValues(t, 9, got.Setup.Seed)
	assert.Positive(t, got.FloorP50us)
	assert.Positive(t, got.HitlineP50us)
	assert.Positive(t, got.Ratio)

	r = runFloor(t)
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "request      20 hashes, raw dialect\n")
}

func TestFloorWrong(t *testing.T) {
	r := runFloor(t, "--json", "--hash-block-tokens", "32")
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, "answers are wrong\n")
	var got floor.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.Greater(t, got.Wrong, 120)
}

func TestFloorUsage(t *testing.T) {
	wrong := map[string][]string{
		"unknown flag: --depth":                    {"--depth", "1"},
		"bad options: 0 hashes":                    {"--hashes", "0"},
		"dialect \"zmtp\"; only raw is measured":   {"--dialect", "zmtp"},
		"--hitline: ":                              {"--hitline", "/no/such"},
		"bad options: a cache of -1048576 bytes":   {"--max-cache", "-1"},
		"bad options: core 100000 of ":             {"--client-core", "100000"},
		"--connect: \"udp://h:1\": unknown scheme": {"--connect", "udp://h:1"},
	}
	if runtime.NumCPU() == 1 {
		delete(wrong, "bad options: core 100000 of ") // no core is chosen
	}
	for want, args := range wrong {
		r := runFloor(t, args...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, want)
		assert.Empty(t, r.stdout)
	}
	for _, args := range [][]string{{"floor-server"}, {"floor-server", "x"}, {"floor-server", "5", "0"}} {
		assert.Equal(t, exitUsage, runWith(t.Context(), &fakeServer{}, nil, args...).code, args)
	}
}

func TestFloorLost(t *testing.T) {
	assert.Equal(t, exitLost, runFloor(t, "--connect", "tcp://127.0.0.1:1").code)
	broken := filepath.Join(t.TempDir(), "hitline")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho no luck >&2\n"), 0o700))
	r := runFloor(t, "--hitline", broken)
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "no luck")
}

func TestFloorHelp(t *testing.T) {
	r := runWith(t.Context(), &fakeServer{}, nil, "floor", "--help")
	assert.Equal(t, exitDone, r.code)
	assert.Contains(t, r.stdout, "--pipeline")
	assert.NotContains(t, runWith(t.Context(), &fakeServer{}, nil, "--help").stdout, floorServer)
}

func TestFindHitline(t *testing.T) {
	dir, path := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	self := filepath.Join(dir, "hitbench")
	_, err := findHitline("", self)
	require.ErrorIs(t, err, cli.ErrUsage)
	require.ErrorContains(t, err, "there is no hitline at "+filepath.Join(dir, "hitline"))
	for _, in := range []string{path, dir} { // that beside the program goes first
		want := filepath.Join(in, "hitline")
		require.NoError(t, os.WriteFile(want, nil, 0o700))
		got, err := findHitline("", self)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	got, err := findHitline(filepath.Join(path, "hitline"), self)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(path, "hitline"), got)
}

// childrenOf returns the processes whose parent is pid.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	var children []int
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, name := range stats {
		text, _ := os.ReadFile(name) // it may have ended
		if at := bytes.LastIndexByte(text, ')'); at >= 0 {
			fields := strings.Fields(string(text[at+1:]))
			if fields[1] == strconv.Itoa(pid) && fields[0] != "Z" {
				child, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
				children = append(children, child)
			}
		}
	}
	return children
}

// However hitbench ends, no server stays behind.
func TestFloorSignals(t *testing.T) {
	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: exitBad, syscall.SIGKILL: -1} {
		cmd := exec.Command(os.Args[0], "floor", "--hashes", "20", "--rounds", "1000", "--hitline", os.Args[0])
		cmd.Env = append(os.Environ(), asCommand+"=1")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		var children []int
		require.Eventually(t, func() bool {
			children = childrenOf(t, cmd.Process.Pid)
			return len(children) == 2
		}, 20*time.Second, time.Millisecond)
		require.NoError(t, cmd.Process.Signal(signal))
		_ = cmd.Wait() // the exit code is looked at below
		assert.Equal(t, code, cmd.ProcessState.ExitCode(), "%v", signal)
		if signal == syscall.SIGTERM {
			assert.Contains(t, stderr.String(), "hitbench: interrupted\n")
		}
		for _, child := range children {
			assert.Eventually(t, func() bool {
				_, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
				return err != nil
			}, 20*time.Second, time.Millisecond, "%v: server %d", signal, child)
		}
	}
}
