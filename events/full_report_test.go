package events

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// TestDoubtful: of what may be a full report of a sliding window, an incomplete source stores the
// window, and a complete one no block in front of one that it held.
func TestDoubtful(t *testing.T) {
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
		set, stats := NewSet(0), &Status{Complete: c.complete}
		a := newApplier(set, &Config{MaxBlocks: 100}, stats)
		set.SetStale(false)
		e := &Event{Kind: KindStored, Group: 1, Tier: Tier{Medium: "GPU"}, SpecKind: "sliding_window", SlidingWindow: 6, BlockSize: 4}
		if c.held >= 0 {
			e.Parent, e.Hashes = []byte("parent.."), netproto.NewHashes(hashes[8*c.held:8*c.held+8], 8)
			require.NoError(t, a.store(e))
		}
		e.Parent, e.Hashes = nil, netproto.NewHashes(hashes, 8)
		require.NoError(t, a.store(e))
		require.NoError(t, a.flush())
		for i, want := range c.want {
			assert.Equal(t, want, set.Contains(1, e.Tier, e.Hashes.At(i)), "%+v: block %d", c, i)
		}
	}
}
