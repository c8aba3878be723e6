package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// In the excerpt, requests come over 267 seconds.
const quick = "100000"

func TestReplaySpeed(t *testing.T) {
	for _, args := range [][]string{nil, {"--connections", "3"}} {
		r := runWith(t.Context(), &fakeServer{}, append([]string{"replay", "--trace", excerpt, "--json", "--speed", quick}, args...)...)
		require.Equal(t, exitDone, r.code, r.stderr)
		got := report(t, r)
		replays := int64(got.Connections)
		assert.Equal(t, 4144*replays, got.HitBlocks)
		assert.Equal(t, 100_000.0, got.Speed)
		assert.Equal(t, 10.0, got.IntervalS)
		require.Len(t, got.Windows, 27)
		assert.Equal(t, 260.0, got.Windows[26].StartS)
		assert.GreaterOrEqual(t, got.Seconds, 0.00267)
	}
}

func TestReplayTimesWrongUsage(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "t.jsonl")
	text := "{\"timestamp\":5,\"hash_ids\":[1]}\n{\"timestamp\":4,\"hash_ids\":[1]}\n"
	require.NoError(t, os.WriteFile(trace, []byte(text), 0o600))
	bare := filepath.Join(dir, "bare.jsonl")
	require.NoError(t, os.WriteFile(bare, []byte(small), 0o600))
	tests := map[string]struct {
		args []string
		want string
	}{
		"speed":         {[]string{"--trace", trace, "--speed", "-1"}, "bad options: a speed of -1; give 1 for the trace's own"},
		"no number":     {[]string{"--trace", trace, "--speed", "NaN"}, "bad options: a speed of NaN; give 1 for the trace's own"},
		"backwards":     {[]string{"--trace", trace, "--speed", "1"}, "bad trace: " + trace + ":2: timestamp 4 is before 5, the line above's"},
		"no timestamps": {[]string{"--trace", bare, "--speed", "1"}, "bad trace: " + bare + ":1: timestamp is missing; a replay at a speed needs one"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &fakeServer{}
			r := runWith(t.Context(), s, append([]string{"replay"}, tt.args...)...)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, "hitbench: "+tt.want)
			assert.Equal(t, 1, strings.Count(withoutHint(r.stderr), "\n"), "one line: %q", r.stderr)
			assert.Empty(t, r.stdout)
			assert.Zero(t, s.dialed, "nothing is stored before the input is good")
		})
	}
}

// A wait for a request that is due in a day does not outlast an interruption.
func TestReplaySpeedInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := &fakeServer{answer: func(_ int, right uint32) (uint32, error) {
		time.AfterFunc(time.Millisecond, stop)
		return right, nil
	}}
	trace := "{\"timestamp\":0,\"hash_ids\":[1]}\n{\"timestamp\":86400000,\"hash_ids\":[1]}\n"
	r := runWith(ctx, s, "replay", "--trace", traceFile(t, trace), "--json", "--speed", "1")
	assert.Equal(t, exitBad, r.code)
	assert.Equal(t, "hitbench: interrupted\n", r.stderr)
	got := report(t, r)
	assert.EqualValues(t, 1, got.Requests)
	assert.True(t, got.Partial)
}

func TestReplayStatus(t *testing.T) {
	assert.Equal(t, "replay: 3 of 9", replayStatus(3, 9, 0))
	assert.Equal(t, "replay: 3 of 9, at 0:01:01", replayStatus(3, 9, 61500*time.Millisecond))
	assert.Equal(t, "replay: 3 of 9, at 99:59:59", replayStatus(3, 9, 100*time.Hour-1))
}
