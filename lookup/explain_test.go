package lookup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
)

func TestExplainDoesNotTouch(t *testing.T) {
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Memory: index.Config{MaxEntries: 32}})
	require.NoError(t, err)
	old, young := lookuptest.Chain("old", 16, 32), lookuptest.Chain("young", 16, 32)
	require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(old, 32)))
	require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(young, 32)))
	e, err := s.Explain(t.Context(), 256, coordinator.NewHashes(old, 32))
	require.NoError(t, err)
	require.EqualValues(t, 256, e.HitTokens)
	require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(lookuptest.Chain("third", 16, 32), 32)))
	hit, err := s.Lookup(t.Context(), 256, coordinator.NewHashes(old, 32))
	require.NoError(t, err)
	require.Zero(t, hit.Tokens, "what was only explained is evicted first")
	hit, err = s.Lookup(t.Context(), 256, coordinator.NewHashes(young, 32))
	require.NoError(t, err)
	require.EqualValues(t, 256, hit.Tokens)
}

// TestLookupAfterExplain uses the same pooled query.
func TestLookupAfterExplain(t *testing.T) {
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Memory: index.Config{MaxEntries: 20}})
	require.NoError(t, err)
	q := s.memory.NewQuery()
	q.explain = true
	q.Release()
	require.False(t, q.explain)
	require.Nil(t, q.presentOnSome[0])
}

// twoRanks returns a service of two ranks. Rank 0 has all blocks, rank 1 those that second tells.
func twoRanks(t *testing.T, keys []byte, second func(i int) bool) *Service {
	pool := blocks16.Pool
	pool.TPSize = 2
	s, err := NewService(ServiceConfig{Pool: pool})
	require.NoError(t, err)
	hashes := coordinator.NewHashes(keys, 32)
	require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, hashes))
	for i := range hashes.Len() {
		if second(i) {
			require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{TPRank: 1}, coordinator.NewHashes(hashes.At(i), 32)))
		}
	}
	return s
}

// A reset in the middle of an explain leaves no rank that lacks a block.
func TestExplainForgetsRanksAtReset(t *testing.T) {
	keys := lookuptest.Chain("a", 4, 32)
	s := twoRanks(t, keys, func(int) bool { return false })
	for _, reset := range []bool{false, true} {
		q := s.memory.NewQuery()
		q.explain = true
		_, err := q.Begin(64, false, 0, 32, 4)
		require.NoError(t, err)
		require.True(t, q.Add(keys[:64]))
		if reset {
			require.NoError(t, s.Reset(t.Context()))
		}
		q.Add(keys[64:])
		e, err := q.explanation()
		require.NoError(t, err)
		if q.Release(); reset {
			require.Nil(t, e.Groups[0].MissingRank)
			require.Equal(t, coordinator.ReasonMissing, e.Groups[0].Reason)
			continue
		}
		require.Equal(t, &api.MissingRank{TPRank: 1}, e.Groups[0].MissingRank)
		require.Equal(t, coordinator.ReasonRank, e.Groups[0].Reason)
	}
}

// The ranks of an explanation take a bounded memory.
func TestExplainBoundsRanks(t *testing.T) {
	const n = maxRankRuns + 1000
	keys := lookuptest.Chain("a", 3, 32)
	s := twoRanks(t, keys, func(i int) bool { return i == 2 })
	q := s.memory.NewQuery()
	q.explain = true
	_, err := q.Begin(16*n, false, 0, 32, n)
	require.NoError(t, err)
	coverage := [2]index.Coverage{}
	for i := range n {
		q.scans[0].position = i
		q.addRankRun(&q.scans[0], 1, &coverage[i%2])
	}
	require.Len(t, q.scans[0].rankRuns, maxRankRuns)
	require.Same(t, &coverage[1], q.scans[0].coverageAt(maxRankRuns-1))
	require.Nil(t, q.scans[0].coverageAt(maxRankRuns))
	q.Release()
	require.Nil(t, q.scans[0].rankRuns)
}
