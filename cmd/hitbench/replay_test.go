package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// In the excerpt, requests come over 267 seconds.
func TestReplaySpeed(t *testing.T) {
	r := runWith(t.Context(), &fakeServer{}, "replay", "--trace", excerpt, "--json", "--speed", "100000")
	require.Equal(t, exitDone, r.code, r.stderr)
	got := report(t, r)
	assert.EqualValues(t, 4144, got.HitBlocks)
	assert.Equal(t, 100_000.0, got.Speed)
	assert.GreaterOrEqual(t, got.Seconds, 0.00267)
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
