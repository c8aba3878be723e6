package index

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestResetOfNothing resets an index in which nothing was stored since the last reset.
func TestResetOfNothing(t *testing.T) {
	x := mustNew(t, onePlace(0))
	keys := chain(1, 100, 32)
	resetsNothing := func() {
		t.Helper()
		var c Cursor
		var runs [2]Run
		x.Begin(&c, 32)
		_, _, clean := x.Probe(&c, keys, 1, runs[:], false)
		require.True(t, clean)
		require.Zero(t, testing.AllocsPerRun(100, x.Reset))
		_, _, clean = x.Probe(&c, keys, 1, runs[:], false)
		require.True(t, clean, "the lookup had found nothing")
		require.True(t, x.End(&c))
	}
	skipIfBuildAllocates(t)
	resetsNothing()
	evict(t, x, 0, keys, 32)
	resetsNothing()

	store(t, x, keys, 32)
	var c Cursor
	var runs [2]Run
	x.Begin(&c, 32)
	_, _, _ = x.Probe(&c, keys, 1, runs[:], false)
	require.NotNil(t, runs[0].Coverage)
	evict(t, x, 0, keys, 32) // the index is empty, but the lookup has found something
	x.Reset()
	require.False(t, x.End(&c))
	resetsNothing()
}

// TestResetIsReleasedInSteps resets an index whose slabs are mapped: each batch that is
// stored then releases a huge page at most, and the byte bound holds all the time.
func TestResetIsReleasedInSteps(t *testing.T) {
	SkipSlow(t)
	const bound = 128 << 20 // so that there are slabs of several huge pages
	x := mustNew(t, Config{MaxBytes: bound, Places: 1, Groups: [][]int{{0}}})
	keys := make([]byte, 1000*32)
	rng := rand.NewChaCha8([32]byte{})
	for !x.evicting {
		_, _ = rng.Read(keys)
		store(t, x, keys, 32)
	}
	x.Reset()
	if x.discardBytes == 0 {
		t.Skip("no memory is mapped here")
	}
	due := x.discardBytes / hugePage
	require.Greater(t, due, int64(len(x.discarded)), "slabs of several huge pages")
	steps := int64(0)
	for ; x.discardBytes > 0; steps++ {
		before := x.discardBytes
		_, _ = rng.Read(keys[:32])
		store(t, x, keys[:32], 32)
		require.LessOrEqual(t, before-x.discardBytes, int64(hugePage))
		require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
	}
	require.Equal(t, due, steps)
	require.Empty(t, x.discarded)
	store(t, x, keys, 32)
	checkBooks(t, x)
}
