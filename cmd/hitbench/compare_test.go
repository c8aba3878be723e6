//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

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
	assert.Equal(t, note, r.stderr, "no terminal, no bar")
	got := comparison(t, r)
	var rivals []string
	for _, row := range got.Rows {
		rivals = append(rivals, row.Rival+" "+row.Way)
		assert.Zero(t, row.Wrong)
		assert.Positive(t, row.P50us)
	}
	each := []string{"floor prepared", "hitline prepared", "hitline-zmtp prepared", "go-net-map prepared", "hitline usual", "go-net-map usual"}
	assert.Equal(t, append(each, each...), rivals)
	assert.Equal(t, []int{20, 50}, got.Hashes)
	assert.Equal(t, 2, got.Rounds)
	assert.Len(t, got.Skipped, 9)
	assert.EqualValues(t, 1, got.Setup.Seed)

	r = runCompare(t, "--seed", "7", "--ways", "usual")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, ", --seed 7\n")
	assert.Contains(t, r.stdout, "\n50 hashes, each by its users' client")
	assert.NotContains(t, r.stdout, "hashes, prepared")
	assert.Contains(t, r.stdout, "redis-exists      skipped: redis-server is neither beside this program nor on PATH; apt-get install redis-server\n")
}

// This binary's hitline takes a hash for 16 tokens, whatever it is told.
func TestCompareWrong(t *testing.T) {
	r := runCompare(t, "--json", "--block-size", "32", "--only", "hitline-zmtp,go-net-map", "--ways", "prepared")
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, "hitbench: note: wrong: hitline-zmtp (prepared), 20 hashes, request 7: expected 640 hit tokens, got 320\n")
	assert.Contains(t, r.stderr, "answers are wrong\n")
	for _, row := range comparison(t, r).Rows {
		assert.Equal(t, row.Rival == "go-net-map", row.Wrong == 0, row.Rival)
	}
	r = runCompare(t, "--block-size", "32", "--only", "floor")
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stdout, " WRONG\n")
}

func TestCompareUsage(t *testing.T) {
	wrong := map[string][]string{
		"unknown flag: --depth":                           {"--depth", "1"},
		"bad options: 0 hashes":                           {"--hashes", "64,0"},
		"bad options: a rival \"memcache\"; there are":    {"--only", "memcache"},
		"bad options: exec: \"/no/such\"":                 {"--python", "/no/such"},
		"--hitline: ":                                     {"--hitline", "/no/such"},
		"bad options: a duration of 0s":                   {"-d", "0"},
		"MiB of requests; give 0 to 4096":                 {"--rotate", "17592186044416"}, // 2⁴⁴: its bytes are 0 in 64 bits
		"bad options: a miss at \"end\"":                  {"--miss-at", "end"},
		"bad options: core 1000 is not among":             {"--client-cores", "1000"},
		"bad options: cores \"0-\"; give any, or a list":  {"--server-cores", "0-"},
		"bad options: a way \"fast\"; there are prepared": {"--ways", "fast"},
	}
	for want, args := range wrong {
		r := runCompare(t, args...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, want)
		assert.Empty(t, r.stdout)
	}
	for _, args := range [][]string{{compareServer}, {compareServer, "x"}, {compareServer, "0"}} {
		assert.Equal(t, exitUsage, runWith(t.Context(), &fakeServer{}, nil, args...).code, args)
	}
}

func TestCompareLost(t *testing.T) {
	r := runCompare(t, "--only", "go-zmq-map")
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "hitbench: go-zmq-map: no connection: missing: hitbench-gomap is neither beside this program nor on PATH; make rivals builds it\n")
	broken := filepath.Join(t.TempDir(), "redis-server")
	script := "#!/bin/sh\n[ \"$1\" = --version ] && echo 'Redis server v=1.2 x' && exit\necho no luck\nexit 1\n"
	require.NoError(t, os.WriteFile(broken, []byte(script), 0o700))
	r = runCompare(t, "--redis-server", broken)
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "ended (exit status 1): no luck\n")
	assert.Empty(t, r.stdout)
}

func TestCompareHelp(t *testing.T) {
	r := runWith(t.Context(), &fakeServer{}, nil, "compare", "--help")
	assert.Equal(t, exitDone, r.code)
	assert.Contains(t, r.stdout, "--miss-at")
	assert.NotContains(t, runWith(t.Context(), &fakeServer{}, nil, "--help").stdout, compareServer)
}
