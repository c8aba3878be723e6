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
	"github.com/hitline/hitline/bench/holders"
)

// runCompare runs hitbench compare with this binary as hitline, and nothing else on
// the machine.
func runCompare(t *testing.T, args ...string) result {
	t.Helper()
	t.Setenv(asCommand, "1")
	t.Setenv("PATH", t.TempDir())
	return hitbench(t, append([]string{"compare"}, args...)...)
}

// quickly returns the arguments of a quick comparison with what needs nothing but this binary.
func quickly(args ...string) []string {
	return append([]string{"--hashes", "20,50", "--entries", "400", "--rotate", "0", "--rounds", "2", "-d", "0.01", "--hitline", os.Args[0]}, args...)
}

func TestCompare(t *testing.T) {
	r := runCompare(t, quickly("--json", "--hit-share", "0.5")...)
	require.Equal(t, exitDone, r.code, r.stderr)
	note := ""
	if runtime.NumCPU() == 1 {
		note = "hitbench: note: client and servers share their cores: nothing is pinned, and the ratios mean little\n"
	}
	assert.Equal(t, note, r.stderr, "no terminal, no status")
	require.Equal(t, 1, strings.Count(r.stdout, "\n"), "one line: %q", r.stdout)
	var got compare.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	var rivals []string
	for _, row := range got.Rows {
		rivals = append(rivals, row.Rival)
		assert.Zero(t, row.Wrong)
		assert.Positive(t, row.P50)
	}
	each := []string{"raw", "hitline", "hitline-zmtp"}
	assert.Equal(t, append(each, each...), rivals)
	assert.Equal(t, []int{20, 50}, got.Hashes)
	assert.Len(t, got.Skipped, 4)

	r = runCompare(t, quickly("--seed", "7", "--pipeline", "5")...)
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, ", --seed 7\n")
	assert.Contains(t, r.stdout, "\n50 hashes; ratios to hitline\n")
	assert.Contains(t, r.stdout, " pipelined/s ")
	assert.Contains(t, r.stdout, "redis-exists      skipped: redis-server is neither beside this program nor on PATH; apt-get install redis-server\n")
}

func TestCompareHolders(t *testing.T) {
	args := []string{"--holders", "3", "--hashes", "16", "--entries", "200", "--rounds", "2", "--duration", "0.002"}
	r := runCompare(t, append(args, "--only", "fleet", "--json")...)
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Empty(t, r.stderr)
	var got holders.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.Equal(t, 3, got.Holders)
	require.Len(t, got.Rows, 6)

	r = runCompare(t, args...)
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "rivals       left out\n")
	assert.Contains(t, r.stderr, "hitbench-dynamo is neither beside this program nor on PATH; make rivals builds it")
}

func TestCompareUsage(t *testing.T) {
	holders, vllm := []string{"--holders", "3"}, []string{"--vllm", "0.33.0", "--hitline", "/bin/true"}
	for want, args := range map[string][]string{
		"unknown flag: --depth":                           quickly("--depth", "1"),
		"hitbench: 0 hashes":                              quickly("--hashes", "64,0"),
		"hitbench: exec: \"/no/such\"":                    quickly("--python", "/no/such"),
		"--hitline: ":                                     quickly("--hitline", "/no/such"),
		"MiB of requests; give 0 to 4096":                 quickly("--rotate", "17592186044416"), // 2⁴⁴: its bytes are 0 in 64 bits
		"--tp needs --vllm":                               quickly("--tp", "8"),
		"--only llm-d: missing: hitbench-llmd is neither": append(holders, "--only", "llm-d"),
		"--only redis: with --holders give fleet, dynamo": append(holders, "--only", "redis"),
		"--rotate does not go with --holders":             append(holders, "--rotate", "1"),
		"hitbench: 0 holders; give":                       {"--holders", "0"},
		"--holders does not go with --vllm":               append(vllm, holders...),
		"hitbench: vLLM \"\"; there are 0.24.0":           {"--vllm", ""},
		"--python: missing: python3 is neither":           vllm,
		"--python: exec: \"/no/python\"":                  append(vllm, "--python", "/no/python"),
		"hitbench: /bin/false cannot be used":             append(vllm, "--python", "/bin/false"),
	} {
		r := runCompare(t, args...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, want)
		assert.Empty(t, r.stdout)
	}
	for _, args := range [][]string{{rawServer}, {rawServer, "x"}, {rawServer, "0"}} {
		assert.Equal(t, exitUsage, hitbench(t, args...).code, args)
	}
	assert.NotContains(t, hitbench(t, "--help").stdout, rawServer)
	r := runCompare(t, quickly("--only", "python-zmq")...)
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "hitbench: python-zmq: no connection: missing: python3 is neither beside this program nor on PATH; apt-get install python3-zmq\n")
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
