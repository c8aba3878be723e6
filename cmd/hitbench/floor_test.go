//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/compare"
	"github.com/hitline/hitline/bench/process"
)

// runFloor runs hitbench floor with this binary as either server.
func runFloor(t *testing.T, args ...string) result {
	t.Setenv(asCommand, "1")
	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr, dial: dial}
	small := []string{"floor", "--hashes", "20", "--entries", "1", "--rotate", "0", "--rounds", "2", "-n", "60", "-d", "0.01", "--hitline", os.Args[0]}
	code := a.run(t.Context(), append(small, args...))
	return result{code, stdout.String(), stderr.String()}
}

func TestFloor(t *testing.T) {
	r := runFloor(t, "--json", "--pipeline", "5", "--seed", "9")
	require.Equal(t, exitDone, r.code, r.stderr)
	got := comparison(t, r)
	assert.Equal(t, []int{20}, got.Hashes)
	assert.Equal(t, []int{2, 5, 0}, []int{got.Rounds, got.Pipeline, got.Wrong})
	assert.InDelta(t, 0.9, got.HitShare, 0)
	assert.EqualValues(t, 9, got.Setup.Seed)
	require.Len(t, got.Rows, 2)
	assert.Equal(t, []string{"floor", "hitline"}, []string{got.Rows[0].Rival, got.Rows[1].Rival})
	for _, row := range got.Rows {
		assert.Equal(t, 2*60, row.Requests)
		for _, figure := range []float64{row.P50us, row.ToFloor.Median, row.CPUus.Median, row.Rate.Median, row.RateToFloor.Median} {
			assert.Positive(t, figure)
		}
	}
	assert.NotNil(t, got.Rows[1].IdleCPU)

	r = runFloor(t)
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "\n20 hashes, prepared bytes over a raw socket")
	assert.NotContains(t, r.stdout, "skipped")
}

// What help says that floor stands for is the same.
func TestFloorIsCompare(t *testing.T) {
	floor := comparison(t, runFloor(t, "--json", "--hashes", "20,50", "--entries", "400"))
	compared := comparison(t, runCompare(t, strings.Fields("-n 60 --json --only floor --ways prepared --rotate 0 --hit-share 0.9 --batch 64 --idle --timeout 10s")...))
	for _, r := range []*compare.Report{&floor, &compared} {
		for i := range r.Rows {
			row := &r.Rows[i]
			assert.Equal(t, row.Rival == compare.Hitline, row.IdleCPU != nil)
			*row = compare.Row{Rival: row.Rival, Way: row.Way, Client: row.Client, Version: row.Version, Note: row.Note, Hashes: row.Hashes, Requests: row.Requests}
		}
		r.Setup.Started, r.Placement = time.Time{}, process.Placement{}
	}
	assert.Equal(t, floor, compared)
}

func TestFloorWrong(t *testing.T) {
	r := runFloor(t, "--json", "--block-size", "32")
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, "answers are wrong\n")
	assert.Greater(t, comparison(t, r).Wrong, 100)
}

func TestFloorUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown flag: --depth":                    {"--depth", "1"},
		"bad options: 0 hashes":                    {"--hashes", "0"},
		"--hitline: ":                              {"--hitline", "/no/such"},
		"bad options: -1 MiB of requests":          {"--rotate", "-1"},
		"bad options: core 1023 is not among":      {"--client-cores", "1023"},
		"--connect: \"udp://h:1\": unknown scheme": {"--connect", "udp://h:1"},
	} {
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
