package lookup

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/lookuptest"
)

// TestConformanceSeeded judges the recorded lookups with a start: of the memory index, with the
// hashes in one piece and in several, and over a backend, in rounds and in one call.
func TestConformanceSeeded(t *testing.T) {
	for _, folder := range conformance.Releases {
		conformance.Run(t, "releases/"+folder+"/seeded_lookup.json", func(c *conformance.WorkerCase) conformance.Verdict {
			pool, err := poolOf(c, conformance.Newest((&coordinator.Pool{VLLM: folder}).FittingReleases()))
			if err != nil {
				return conformance.Differs("pool: %v", err)
			}
			return judgeSeeded(t, c, pool)
		})
	}
}

func judgeSeeded(t *testing.T, c *conformance.WorkerCase, pool coordinator.Pool) conformance.Verdict {
	memory, err := NewService(ServiceConfig{Pool: pool, Memory: index.Config{MaxBytes: 16 << 20}})
	require.NoError(t, err)
	content, err := c.ContentOf(prefixesOf(memory.coord))
	require.NoError(t, err)
	for key := range content {
		at, hash, err := parseKey(key)
		require.NoError(t, err)
		require.NoError(t, memory.Store(t.Context(), at, coordinator.NewHashes(hash, len(hash))))
	}
	hashes := coordinator.NewHashes(c.BlobFromStart(memory.pool.HashBlockSize), c.HashLen).From(c.StartTokens)
	for _, piece := range []int{max(1, hashes.Len()), 1, 5} {
		hit, err := lookupPieces(memory, uint64(c.TokenLen), hashes, piece)
		if v := judgeSeededHit(c, hit, err); v != "" {
			return conformance.Differs("memory, %d hashes at a time: %s", piece, v)
		}
	}
	store := &lookuptest.KeyStore{Keys: content}
	remote, err := NewService(ServiceConfig{Pool: pool, Backend: store, Remote: RemoteConfig{Timeout: lookuptest.Patience}})
	require.NoError(t, err)
	hit, err := remote.Lookup(t.Context(), c.TokenLen, hashes)
	if v := judgeSeededHit(c, hit, err); v != "" {
		return conformance.Differs("backend: %s", v)
	}
	return conformance.Verdict{}
}

// judgeSeededHit returns how an answer differs, "" if it does not.
func judgeSeededHit(c *conformance.WorkerCase, hit coordinator.Hit, err error) string {
	want := &c.Expect
	switch {
	case classOf(err) != want.Error:
		return fmt.Sprintf("error %v, want %q", err, want.Error)
	case err == nil && (hit.Tokens != want.HitLength || !slices.Equal(pairsOf(hit.TailBoundaries), want.TailKeyBoundaries)):
		return fmt.Sprintf("%v, want %d, %v", hit, want.HitLength, want.TailKeyBoundaries)
	}
	return ""
}

// What lies before a start counts neither as hit nor as missed, and no key of it is asked. A start
// makes lookups unequal.
func TestStartIsCounted(t *testing.T) {
	pool := coordinator.Pool{VLLM: "0.28.0", HashBlockSize: 16, SchedulerBlockSize: 32, TPSize: 2, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 17},
	}}
	whole := coordinator.NewHashes(lookuptest.Chain("a", 8, 32), 32)
	hashes := coordinator.NewHashes(whole.Bytes()[4*32:], 32).From(64)
	store := &lookuptest.KeyStore{}
	remote, err := NewService(ServiceConfig{Pool: pool, Backend: store, Remote: RemoteConfig{Timeout: lookuptest.Patience}})
	require.NoError(t, err)
	memory, err := NewService(ServiceConfig{Pool: pool})
	require.NoError(t, err)
	for _, s := range []*Service{memory, remote} {
		for rank := range uint16(2) {
			for group := range uint16(2) {
				at := coordinator.GroupRank{Group: group, TPRank: rank}
				require.NoError(t, s.Store(t.Context(), at, coordinator.NewHashes(whole.Bytes()[4*32:6*32], 32)))
			}
		}
		hit, err := s.Lookup(t.Context(), 129, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 96, hit.Tokens)
		hit, err = s.Lookup(t.Context(), 129, whole)
		require.NoError(t, err)
		require.Zero(t, hit.Tokens)
		hit, err = s.Lookup(t.Context(), 129, coordinator.NewHashes(whole.Bytes()[6*32:], 32).From(96))
		require.NoError(t, err)
		require.EqualValues(t, 96, hit.Tokens, "nothing to load")
		e, err := s.Explain(t.Context(), 129, hashes)
		require.NoError(t, err)
		require.EqualValues(t, []int64{64, 96}, []int64{e.StartTokens, e.HitTokens})
		require.EqualValues(t, 6, *e.Groups[0].FirstMissingBlock)
		_, err = s.Lookup(t.Context(), 129, hashes.From(48))
		require.ErrorIs(t, err, coordinator.ErrPrecondition)
		require.EqualValues(t, 3, s.Stat().Lookups)
		// Before 64 tokens are 4 keys of the full group and 2 of the window on each of two ranks.
		require.EqualValues(t, 2*(4+2), s.Coordinator().KeysBefore(64))
	}
	require.NotEqual(t, newCoalesceKey(0, 129, hashes, modeAsk), newCoalesceKey(0, 129, hashes.From(0), modeAsk))
}

// A reset in the middle of a lookup takes what was found, and not what lies before the start.
func TestStartOutlivesReset(t *testing.T) {
	s, err := NewService(blocks16)
	require.NoError(t, err)
	hashes := coordinator.NewHashes(lookuptest.Chain("a", 8, 32), 32)
	require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, hashes))
	q := s.memory.NewQuery()
	defer q.Release()
	wanted, err := q.Begin(16*16, false, 8*16, 32, 8)
	require.NoError(t, err)
	require.True(t, wanted)
	q.Add(hashes.Bytes()[:4*32])
	s.memory.index.Reset()
	q.Add(hashes.Bytes()[4*32:])
	hit, err := q.Finish()
	require.NoError(t, err)
	require.EqualValues(t, 8*16, hit.Tokens)
}
