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

	"github.com/hitline/hitline/bench/scale"
)

// runScale runs hitbench scale with this binary as the server.
func runScale(ctx context.Context, t *testing.T, args ...string) result {
	t.Setenv(asCommand, "1")
	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr, dial: dial}
	small := []string{"scale", "--hashes", "20", "--entries", "100", "--loops", "1", "--connections", "1,2", "--rounds", "2", "--seed", "7", "--duration", "100ms", "--hitline", os.Args[0]}
	code := a.run(ctx, append(small, args...))
	return result{code, stdout.String(), stderr.String()}
}

func TestScale(t *testing.T) {
	r := runScale(t.Context(), t, "--json")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, 1, strings.Count(r.stdout, "\n"))
	var got scale.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.Len(t, got.Points, 2)
	assert.Equal(t, []int{1, 2}, []int{got.Points[0].Connections, got.Points[1].Connections})
	assert.Equal(t, []int{20, 2}, []int{got.Hashes, got.Rounds})
	assert.EqualValues(t, 7, got.Setup.Seed)
	if got.Shared {
		assert.Contains(t, r.stderr, "hitbench: note: client and server share the cores")
	}

	r = runScale(t.Context(), t, "--pipeline", "3")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "lookups      20 hashes, all hit; 3 under way on a connection\n")
}

func TestScaleUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"bad options: 0 loops; give 1 to": {"--loops", "0"},
		"bad options: 0 rounds; give 1":   {"--rounds", "0"},
		"bad options: -1 to -1 hashes":    {"--hashes", "-1"},
		"--hitline: ":                     {"--hitline", "/no/such"},
		"unexpected argument \"x\"":       {"x"},
	} {
		r := runScale(t.Context(), t, args...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, want)
		assert.Empty(t, r.stdout)
	}
}

func TestScaleLostAndInterrupted(t *testing.T) {
	r := runScale(t.Context(), t, "--hitline", "/bin/false")
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "false ended (exit status 1)")
	assert.Empty(t, r.stdout)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r = runScale(ctx, t, "--duration", "1h")
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, "hitbench: interrupted\n")
}
