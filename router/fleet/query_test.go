package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

// storeOf stores blocks of a group whose kind is told.
func storeOf(t *testing.T, h *Holder, group int, hashes coordinator.Hashes, kind string, window int64) {
	b := &events.Blocks{Group: group, Tier: events.Tier{Medium: "GPU"}, Hashes: hashes, BlockSize: 16, SpecKind: kind, SlidingWindow: window}
	require.NoError(t, h.Store(b, make([]bool, hashes.Len())))
}

func TestStoreWithoutHeld(t *testing.T) {
	f, hs := newTestFleet(t, Config{BlockSize: 16}, 1)
	hashes := randomHashes(newRand(1), maxStep+1)
	require.NoError(t, hs[0].Store(&events.Blocks{Tier: events.Tier{Medium: "GPU"}, Hashes: hashes}, nil))
	require.EqualValues(t, 16*hashes.Len(), tokens(t, f, hs[0], hashes))
}

// A query that began before a group was known does not count its blocks as those of another group.
func TestGroupLearnedDuringQuery(t *testing.T) {
	f, hs := newTestFleet(t, Config{BlockSize: 16}, 1)
	all := randomHashes(newRand(1), 64)
	first, second := slice(all, 0, 8), slice(all, 8, 64)
	storeOf(t, hs[0], 0, first, "full_attention", 0)
	var q Query
	require.NoError(t, q.Begin(f, all.HashLen()))
	q.Add(first.Bytes())
	storeOf(t, hs[0], 1, second, "sliding_window", 64)
	q.Add(second.Bytes())
	var r Result
	q.End(&r)
	require.EqualValues(t, 16*first.Len(), r.Holders[0].Tokens)
}

// A holder that was stale when a query read its blocks may have lost them before.
func TestStaleDuringQuery(t *testing.T) {
	all := randomHashes(newRand(1), 16)
	for _, kinds := range [][]string{{"full_attention"}, {"sliding_window"}, {"full_attention", "sliding_window"}} {
		f, hs := newTestFleet(t, Config{BlockSize: 16}, 1)
		for g, kind := range kinds {
			storeOf(t, hs[0], g, all, kind, 64)
		}
		require.NoError(t, hs[0].Predict(slice(all, 0, 2)))
		hs[0].SetStale(true)
		var q Query
		require.NoError(t, q.Begin(f, all.HashLen()))
		q.Add(all.Bytes())
		require.NoError(t, hs[0].Remove(&events.Blocks{Group: events.NoGroup, Hashes: slice(all, 3, 16)}))
		hs[0].SetStale(false)
		var r Result
		q.End(&r)
		require.Len(t, r.Holders, 1, kinds)
		require.EqualValues(t, 2*16, r.Holders[0].Tokens, "%v: only what is predicted counts", kinds)
		require.EqualValues(t, 3*16, tokens(t, f, hs[0], all), "%v: the next query", kinds)
	}
}

// Groups are learned anew once no holder is left, also if a snapshot is being copied then.
func TestGroupsEndDuringSnapshot(t *testing.T) {
	f, hs := newTestFleet(t, Config{BlockSize: 16}, 1)
	hashes := randomHashes(newRand(1), 16)
	storeOf(t, hs[0], 0, hashes, "full_attention", 0)
	f.core.copying++ // as Snapshot does
	copied := f.core
	hs[0].Close()
	h, err := f.Add(ID{Engine: "other"})
	require.NoError(t, err)
	h.SetStale(false)
	storeOf(t, h, 0, hashes, "sliding_window", 64)
	copied.copying--
	require.EqualValues(t, 16*16, tokens(t, f, h, hashes))
	checkCore(t, f)
}
