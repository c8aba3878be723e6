//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/load"
)

// runSweep runs hitbench run over two points, with this binary as the server.
func runSweep(ctx context.Context, t *testing.T, args ...string) result {
	t.Setenv(asCommand, "1")
	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr, dial: dial}
	small := []string{"run", "--start", "--hashes", "20", "--entries", "100", "--loops", "1", "--connections", "1,2", "--rounds", "2", "--seed", "7", "--duration", "100ms", "--hitline", os.Args[0]}
	code := a.run(ctx, append(small, args...))
	return result{code, stdout.String(), stderr.String()}
}

func TestRunSweep(t *testing.T) {
	r := runSweep(t.Context(), t, "--json")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, 1, strings.Count(r.stdout, "\n"))
	var got load.SweepReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.Len(t, got.Points, 2)
	assert.Equal(t, []int{1, 2}, []int{got.Points[0].Connections, got.Points[1].Connections})
	assert.Equal(t, []any{"20", 2, 1.0}, []any{got.Hashes, got.Rounds, got.HitShare})
	assert.EqualValues(t, 7, got.Setup.Seed)
	if got.Shared {
		assert.Contains(t, r.stderr, "hitbench: note: client and server share the cores")
	}

	r = runSweep(t.Context(), t, "--pipeline", "3")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "lookups      random, 20 hashes, 100 % hit whole, others miss at: random; 3 under way on a connection\n")
}

// --sweep starts a server, and has lists of its own for what is not given.
func TestRunSweepDefaults(t *testing.T) {
	t.Setenv(asCommand, "1")
	r := runLoad(t.Context(), "--sweep", "-c", "1", "--rounds", "1", "-n", "50", "--hitline", os.Args[0], "--json")
	require.Equal(t, exitDone, r.code, r.stderr)
	var got load.SweepReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.Equal(t, 1, got.Points[0].Connections)
	assert.Equal(t, 1, got.Points[0].Loops)
	r = runLoad(t.Context(), "-c", "1,2")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, "a sweep over connections and loops starts its servers; add --start")
}

func TestRunSweepUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--loops [0]; give more than 0":   {"--loops", "0"},
		"bad options: 0 rounds; give 1":   {"--rounds", "0"},
		"bad options: 3 hashes at most":   {"--hashes", "9-3"},
		"--rate does not go with a sweep": {"--rate", "5"},
		"--hdr does not go with a sweep":  {"--hdr", "-"},
		"--hitline: ":                     {"--hitline", "/no/such"},
		"unexpected argument \"x\"":       {"x"},
	} {
		r := runSweep(t.Context(), t, args...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, want)
		assert.Empty(t, r.stdout)
	}
}

func TestRunSweepLostAndInterrupted(t *testing.T) {
	r := runSweep(t.Context(), t, "--hitline", "/bin/false")
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "false ended (exit status 1)")
	assert.Empty(t, r.stdout)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r = runSweep(ctx, t, "--duration", "1h")
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, "hitbench: interrupted\n")
}
