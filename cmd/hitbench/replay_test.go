package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/client"
)

// In the excerpt, requests come over 267 seconds.
const quick = "100000"

func TestReplaySpeed(t *testing.T) {
	for _, args := range [][]string{nil, {"--connections", "3"}, {"--connections", "3", "--split"}} {
		r := runWith(t.Context(), &fakeServer{}, nil, append([]string{"replay", "--trace", excerpt, "--json", "--speed", quick}, args...)...)
		require.Equal(t, exitDone, r.code, r.stderr)
		got := report(t, r)
		replays := int64(got.Connections)
		if got.Split {
			replays = 1
		}
		assert.Equal(t, 4144*replays, got.HitBlocks)
		assert.Equal(t, 100_000.0, got.Speed)
		assert.Equal(t, 10.0, got.IntervalS)
		require.Len(t, got.Windows, 27)
		assert.Equal(t, 260.0, got.Windows[26].StartS)
		assert.GreaterOrEqual(t, got.Seconds, 0.00267)
	}
}

func TestReplaySplit(t *testing.T) {
	for _, trace := range []string{excerpt, "-"} {
		text, err := os.ReadFile(excerpt)
		require.NoError(t, err)
		s := &fakeServer{}
		r := runWith(t.Context(), s, strings.NewReader(string(text)), "replay", "--trace", trace, "--json", "--connections", "4", "--split")
		require.Equal(t, exitDone, r.code, r.stderr)
		got := report(t, r)
		assert.EqualValues(t, 799, got.Requests)
		assert.EqualValues(t, 21951, got.Blocks)
		assert.EqualValues(t, 4144, got.HitBlocks)
		assert.Len(t, got.ConnectionRequests, 4)
		assert.Equal(t, os.Args, got.Setup.Command)
		assert.Zero(t, got.Setup.Seed, "nothing is drawn")
		assert.Equal(t, 4, s.closed)
	}
}

// One connection reads standard input as it comes; to split it over one, it is
// kept and read twice.
func TestReplaySplitStdinAlone(t *testing.T) {
	r := runWith(t.Context(), &fakeServer{}, strings.NewReader(small), "replay", "--trace", "-", "--json", "--split")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.EqualValues(t, 3, report(t, r).Requests)
}

func TestReplaySplitMismatch(t *testing.T) {
	higher := func(_ int, right uint32) (uint32, error) { return right + 512, nil }
	r := runWith(t.Context(), &fakeServer{answer: higher}, nil, "replay", "--trace", excerpt, "--json", "--connections", "3", "--split")
	assert.Equal(t, exitBad, r.code)
	assert.EqualValues(t, 799, report(t, r).Wrong)
	assert.Equal(t, maxDescribed, strings.Count(r.stderr, "expected"))
}

func TestReplayFiles(t *testing.T) {
	dir := t.TempDir()
	hdr := filepath.Join(dir, "h.txt")
	args := []string{"replay", "--trace", excerpt, "--hdr", hdr}
	for range 2 { // the second time, over the first ones
		r := runWith(t.Context(), &fakeServer{}, nil, args...)
		require.Equal(t, exitDone, r.code, r.stderr)
		text, err := os.ReadFile(hdr)
		require.NoError(t, err)
		assert.Contains(t, string(text), "Total count    =          799]")
		assert.Contains(t, string(text), " Value\tPercentile\t")
	}
	// A replay that ends early leaves what there is.
	lost := &fakeServer{answer: func(call int, right uint32) (uint32, error) {
		if call == 7 {
			return 0, fmt.Errorf("%w: reset by peer", client.ErrConnect)
		}
		return right, nil
	}}
	assert.Equal(t, exitLost, runWith(t.Context(), lost, nil, args...).code)
	text, err := os.ReadFile(hdr)
	require.NoError(t, err)
	assert.Contains(t, string(text), "Total count    =            6]")
}

// What an earlier replay has left is there until there is something better.
func TestReplayFilesWithoutServer(t *testing.T) {
	hdr := filepath.Join(t.TempDir(), "h.txt")
	require.NoError(t, os.WriteFile(hdr, []byte("an earlier one, which is longer than nothing"), 0o600))
	absent := &fakeServer{refuse: func(context.Context, string) error { return client.ErrConnect }}
	assert.Equal(t, exitLost, runWith(t.Context(), absent, nil, "replay", "--trace", excerpt, "--hdr", hdr).code)
	text, err := os.ReadFile(hdr)
	require.NoError(t, err)
	assert.Equal(t, "an earlier one, which is longer than nothing", string(text))
}

func TestReplayFilesCannotBeWritten(t *testing.T) {
	r := runWith(t.Context(), &fakeServer{}, nil, "replay", "--trace", excerpt, "--json", "--hdr", "/dev/full")
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	assert.Equal(t, exitBad, r.code)
	assert.Equal(t, "hitbench: cannot write /dev/full: write /dev/full: no space left on device\n", r.stderr)
	assert.EqualValues(t, 799, report(t, r).Requests, "the report is written all the same")
}

func TestReplayTimesWrongUsage(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "t.jsonl")
	text := "{\"timestamp\":5,\"hash_ids\":[1]}\n{\"timestamp\":4,\"hash_ids\":[1]}\n"
	require.NoError(t, os.WriteFile(trace, []byte(text), 0o600))
	bare := filepath.Join(dir, "bare.jsonl")
	require.NoError(t, os.WriteFile(bare, []byte(small), 0o600))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(trace, link))
	missing := filepath.Join(dir, "no", "h.txt")
	tests := map[string]struct {
		args []string
		want string
	}{
		"speed":         {[]string{"--trace", trace, "--speed", "-1"}, "bad options: a speed of -1; give 1 for the trace's own"},
		"no number":     {[]string{"--trace", trace, "--speed", "NaN"}, "bad options: a speed of NaN; give 1 for the trace's own"},
		"backwards":     {[]string{"--trace", trace, "--speed", "1"}, "bad trace: " + trace + ":2: timestamp 4 is before 5, the line above's"},
		"no timestamps": {[]string{"--trace", bare, "--speed", "1"}, "bad trace: " + bare + ":1: timestamp is missing; a replay at a speed needs one"},
		"no folder":     {[]string{"--trace", bare, "--hdr", missing}, "--hdr: open " + missing + ": no such file"},
		"over itself":   {[]string{"--trace", trace, "--hdr", link}, "--hdr: " + link + " is the trace; name another file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &fakeServer{}
			r := runWith(t.Context(), s, nil, append([]string{"replay"}, tt.args...)...)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, "hitbench: "+tt.want)
			assert.Equal(t, 1, strings.Count(withoutHint(r.stderr), "\n"), "one line: %q", r.stderr)
			assert.Empty(t, r.stdout)
			assert.Zero(t, s.dialed, "nothing is stored before the input is good")
		})
	}
	kept, err := os.ReadFile(trace)
	require.NoError(t, err)
	assert.Equal(t, text, string(kept))
}

// A wait for a request that is due in a day does not outlast an interruption.
func TestReplaySpeedInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := &fakeServer{answer: func(_ int, right uint32) (uint32, error) {
		time.AfterFunc(time.Millisecond, stop)
		return right, nil
	}}
	trace := "{\"timestamp\":0,\"hash_ids\":[1]}\n{\"timestamp\":86400000,\"hash_ids\":[1]}\n"
	r := runWith(ctx, s, strings.NewReader(trace), "replay", "--trace", "-", "--json", "--speed", "1")
	assert.Equal(t, exitBad, r.code)
	assert.Equal(t, "hitbench: interrupted\n", r.stderr)
	got := report(t, r)
	assert.EqualValues(t, 1, got.Requests)
	assert.True(t, got.Partial)
}

func TestReplayPhase(t *testing.T) {
	for at, want := range map[time.Duration]string{
		0:                        "replay",
		999 * time.Millisecond:   "replay, at 0:00:00",
		61500 * time.Millisecond: "replay, at 0:01:01",
		100*time.Hour - 1:        "replay, at 99:59:59",
	} {
		assert.Equal(t, want, replayPhase(at))
	}
}
