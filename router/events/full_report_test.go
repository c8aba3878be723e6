package events

import (
	"bytes"
	"testing"

	"github.com/hitline/hitline/coordinator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPartialReport: of what may be a full report of a sliding window, an incomplete source stores the
// window, and a complete one no block in front of one that it held.
func TestPartialReport(t *testing.T) {
	hashes := bytes.Repeat([]byte{1, 1, 1, 1, 1, 1, 1, 1}, 4)
	for i := range hashes {
		hashes[i] = byte(i / 8)
	}
	for _, c := range []struct {
		complete bool
		held     int // block that is held before, or -1
		want     []bool
	}{
		{false, -1, []bool{false, false, true, true}},
		{true, -1, []bool{true, true, true, true}},
		{true, 2, []bool{false, false, true, true}},
	} {
		set, stats := newTestSet(), &Status{Complete: c.complete}
		a := newApplier(set, &Config{MaxBlocks: 100}, stats)
		set.SetStale(false)
		e := &Event{Kind: KindStored, Group: 1, Tier: Tier{Medium: "GPU"}, SpecKind: "sliding_window", SlidingWindow: 6, BlockSize: 4}
		if c.held >= 0 {
			e.Parent, e.Hashes = []byte("parent.."), coordinator.NewHashes(hashes[8*c.held:8*c.held+8], 8)
			require.NoError(t, a.store(e))
		}
		e.Parent, e.Hashes = nil, coordinator.NewHashes(hashes, 8)
		require.NoError(t, a.store(e))
		require.NoError(t, a.flush())
		for i, want := range c.want {
			assert.Equal(t, want, set.Contains(1, e.Tier, e.Hashes.At(i)), "%+v: block %d", c, i)
		}
	}
}

// TestPartialReportOfUncountedCopies: the engine still caches the window by copies that were not counted.
// Nothing in front of it is stored.
func TestPartialReportOfUncountedCopies(t *testing.T) {
	hashes := bytes.Repeat([]byte{1, 1, 1, 1, 1, 1, 1, 1}, 3)
	for i := range hashes {
		hashes[i] = byte(i / 8)
	}
	set := newTestSet()
	a := newApplier(set, &Config{MaxBlocks: 100}, &Status{Complete: true})
	set.SetStale(false)
	e := &Event{
		Kind: KindStored, Group: 1, Tier: Tier{Medium: "GPU"}, SpecKind: "sliding_window", SlidingWindow: 5, BlockSize: 4,
		Hashes: coordinator.NewHashes(hashes, 8),
	}
	require.NoError(t, a.store(e))
	require.NoError(t, a.store(e)) // a second copy of each
	for _, block := range []int{0, 0, 1, 1, 2} {
		require.NoError(t, a.remove(&Event{Kind: KindRemoved, Group: 1, Tier: e.Tier, Hashes: coordinator.NewHashes(hashes[8*block:8*block+8], 8)}))
	}
	require.NoError(t, a.flush())
	require.Zero(t, set.Len())
	require.NoError(t, a.store(e)) // a full report, of which block 2 is cached
	require.NoError(t, a.flush())
	for i, want := range []bool{false, false, true} {
		assert.Equal(t, want, set.Contains(1, e.Tier, e.Hashes.At(i)), "block %d", i)
	}
}

// TestStoreNothing: vLLM 0.32 sends events without blocks for groups with a sliding window.
func TestStoreNothing(t *testing.T) {
	for _, kind := range []string{"", "full_attention", "sliding_window", "mamba"} {
		for _, complete := range []bool{false, true} {
			set, stats := newTestSet(), &Status{Complete: complete}
			a := newApplier(set, &Config{MaxBlocks: 100}, stats)
			e := &Event{Kind: KindStored, Group: 1, Tier: Tier{Medium: "GPU"}, SpecKind: kind, SlidingWindow: 6, BlockSize: 4}
			require.NoError(t, a.store(e))
			require.NoError(t, a.flush())
			assert.Zero(t, set.Len())
			assert.Zero(t, stats.Stored)
		}
	}
}
