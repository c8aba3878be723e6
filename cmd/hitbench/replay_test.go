package main

import (
	"testing"

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
