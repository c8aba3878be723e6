//go:build linux

package main

import (
	"bytes"
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

	"github.com/hitline/hitline/bench/compare"
)

// runCompare runs hitbench compare with this binary as hitline, and nothing else on
// the machine.
func runCompare(t *testing.T, args ...string) result {
	t.Setenv(asCommand, "1")
	t.Setenv("PATH", t.TempDir())
	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr, dial: dial}
	small := []string{"compare", "--hashes", "20,50", "--entries", "400", "--rotate", "0", "--rounds", "2", "-d", "0.01", "--hitline", os.Args[0]}
	code := a.run(t.Context(), append(small, args...))
	return result{code, stdout.String(), stderr.String()}
}

func comparison(t *testing.T, r result) compare.Report {
	t.Helper()
	require.Equal(t, 1, strings.Count(r.stdout, "\n"), "one line: %q", r.stdout)
	var got compare.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	return got
}

func TestCompare(t *testing.T) {
	r := runCompare(t, "--json", "--hit-share", "0.5", "--miss-at", "tail")
	require.Equal(t, exitDone, r.code, r.stderr)
	note := ""
	if runtime.NumCPU() == 1 {
		note = "hitbench: note: client and servers share their cores: nothing is pinned, and the ratios mean little\n"
	}
	assert.Equal(t, note, r.stderr, "no terminal, no status")
	got := comparison(t, r)
	var rivals []string
	for _, row := range got.Rows {
		rivals = append(rivals, row.Rival)
		assert.Zero(t, row.Wrong)
		assert.Positive(t, row.P50us)
	}
	each := []string{"raw", "hitline", "hitline-zmtp"}
	assert.Equal(t, append(each, each...), rivals)
	assert.Equal(t, []int{20, 50}, got.Hashes)
	assert.Equal(t, 2, got.Rounds)
	assert.Len(t, got.Skipped, 6)
	assert.EqualValues(t, 1, got.Setup.Seed)

	r = runCompare(t, "--seed", "7", "--pipeline", "5")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, ", --seed 7\n")
	assert.Contains(t, r.stdout, "\n50 hashes; ratios to hitline\n")
	assert.Contains(t, r.stdout, "\npipelined    hitline, 5 under way: ")
	assert.Contains(t, r.stdout, "redis-exists      skipped: redis-server is neither beside this program nor on PATH; apt-get install redis-server\n")
}

// This binary's hitline takes a hash for 16 tokens, whatever it is told.
func TestCompareWrong(t *testing.T) {
	r := runCompare(t, "--json", "--block-size", "32", "--only", "hitline-zmtp,raw")
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, "hitbench: note: wrong: hitline-zmtp, 20 hashes, request 14: expected 640 hit tokens, got 320\n")
	assert.Contains(t, r.stderr, "answers are wrong\n")
	for _, row := range comparison(t, r).Rows {
		assert.Equal(t, row.Rival == "raw", row.Wrong == 0, row.Rival)
	}
	r = runCompare(t, "--block-size", "32", "--only", "raw")
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stdout, " WRONG\n")
}

func TestCompareUsage(t *testing.T) {
	wrong := map[string][]string{
		"unknown flag: --depth":                          {"--depth", "1"},
		"bad options: 0 hashes":                          {"--hashes", "64,0"},
		"bad options: a rival \"memcache\"; there are":   {"--only", "memcache"},
		"bad options: exec: \"/no/such\"":                {"--python", "/no/such"},
		"--hitline: ":                                    {"--hitline", "/no/such"},
		"bad options: a duration of 0s":                  {"-d", "0"},
		"MiB of requests; give 0 to 4096":                {"--rotate", "17592186044416"}, // 2⁴⁴: its bytes are 0 in 64 bits
		"bad options: a miss at \"end\"":                 {"--miss-at", "end"},
		"bad options: core 1000 is not among":            {"--client-cores", "1000"},
		"bad options: cores \"0-\"; give any, or a list": {"--server-cores", "0-"},
	}
	for want, args := range wrong {
		r := runCompare(t, args...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, want)
		assert.Empty(t, r.stdout)
	}
	for _, args := range [][]string{{rawServer}, {rawServer, "x"}, {rawServer, "0"}} {
		assert.Equal(t, exitUsage, runWith(t.Context(), &fakeServer{}, args...).code, args)
	}
}

func TestCompareLost(t *testing.T) {
	r := runCompare(t, "--only", "python-zmq")
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "hitbench: python-zmq: no connection: missing: python3 is neither beside this program nor on PATH; apt-get install python3-zmq\n")
	broken := filepath.Join(t.TempDir(), "redis-server")
	script := "#!/bin/sh\n[ \"$1\" = --version ] && echo 'Redis server v=1.2 x' && exit\necho no luck\nexit 1\n"
	require.NoError(t, os.WriteFile(broken, []byte(script), 0o700))
	r = runCompare(t, "--redis-server", broken)
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "ended (exit status 1): no luck\n")
	assert.Empty(t, r.stdout)
}

func TestCompareHelp(t *testing.T) {
	r := runWith(t.Context(), &fakeServer{}, "compare", "--help")
	assert.Equal(t, exitDone, r.code)
	assert.Contains(t, r.stdout, "--miss-at")
	assert.NotContains(t, runWith(t.Context(), &fakeServer{}, "--help").stdout, rawServer)
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

// end is how a process of hitbench ended.
type end struct {
	code   int
	stderr string
}

// signalled runs hitbench as a process, sends it a signal once it has n children, and waits for its end.
func signalled(t *testing.T, signal syscall.Signal, n int, args ...string) (ended end, children []int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		children = childrenOf(t, cmd.Process.Pid)
		return len(children) == n
	}, 20*time.Second, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(signal))
	_ = cmd.Wait() // the caller looks at the exit code
	return end{cmd.ProcessState.ExitCode(), stderr.String()}, children
}

// However hitbench ends, no server stays behind.
func TestCompareSignals(t *testing.T) {
	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: exitBad, syscall.SIGKILL: -1} {
		ended, children := signalled(t, signal, 2, "compare", "--only", "raw", "--hashes", "20", "--rounds", "1000", "--hitline", os.Args[0])
		assert.Equal(t, code, ended.code, "%v", signal)
		if signal == syscall.SIGTERM {
			assert.Contains(t, ended.stderr, "hitbench: interrupted\n")
		}
		for _, child := range children {
			assert.Eventually(t, func() bool {
				_, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
				return err != nil
			}, 20*time.Second, time.Millisecond, "%v: server %d", signal, child)
		}
	}
}
