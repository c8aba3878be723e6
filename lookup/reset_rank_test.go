package lookup

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// Each group rank that matches loses its blocks, the others keep theirs.
func TestResetRankMatches(t *testing.T) {
	const any = coordinator.AnyRank
	pool := coordinator.Pool{HashBlockSize: 16, VLLM: "0.28.0", TPSize: 2, PPSize: 2, NumKVHead: 2, PCPSize: 2,
		Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.MLAAttention, BlockSize: 16}}}
	fields := []uint16{0, 1, any, 2}
	for _, g := range fields {
		for _, tp := range fields {
			for _, pp := range fields {
				for _, pcp := range fields {
					checkResetRank(t, pool, coordinator.GroupRank{Group: g, TPRank: tp, PPRank: pp, PCPRank: pcp})
				}
			}
		}
	}
}

func checkResetRank(t *testing.T, pool coordinator.Pool, at coordinator.GroupRank) {
	t.Helper()
	service, err := NewService(ServiceConfig{Pool: pool})
	require.NoError(t, err)
	fits := func(field, n uint16) bool { return field == coordinator.AnyRank || field == n }
	kept, all := 0, 0
	for g := range uint16(2) {
		for tp := range uint16(2) {
			for pp := range uint16(2) {
				for pcp := range uint16(2) {
					rank := coordinator.GroupRank{Group: g, TPRank: tp, PPRank: pp, PCPRank: pcp}
					if _, err := service.ranks.place(rank); err != nil {
						continue
					}
					// Each rank has a key of its own.
					require.NoError(t, service.Store(t.Context(), rank, coordinator.NewHashes(lookuptest.Chain("rank", 64, 32)[32*all:32*all+32], 32)))
					if all++; !fits(at.Group, g) || !fits(at.TPRank, tp) || !fits(at.PPRank, pp) || !fits(at.PCPRank, pcp) {
						kept++
					}
				}
			}
		}
	}
	err = service.ResetRank(t.Context(), at)
	if kept == all {
		require.ErrorIs(t, err, ErrGroupRank, "%+v", at)
	} else {
		require.NoError(t, err)
	}
	require.EqualValues(t, kept, service.Stat().Entries, "%+v", at)
}

// Over a backend only a reset of all ranks is served, as a reset.
func TestResetRankOverBackend(t *testing.T) {
	store := new(lookuptest.KeyStore)
	service, err := NewService(ServiceConfig{Pool: lookuptest.Blocks16, Backend: store})
	require.NoError(t, err)
	keys := coordinator.NewHashes(lookuptest.Chain("a", 4, 32), 32)
	require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, keys))
	tokens := func() int64 {
		hit, err := service.Lookup(context.Background(), 64, keys)
		require.NoError(t, err)
		return hit.Tokens
	}
	require.ErrorIs(t, service.ResetRank(t.Context(), coordinator.GroupRank{}), ErrResetRank)
	require.EqualValues(t, 64, tokens())
	const any = coordinator.AnyRank
	require.NoError(t, service.ResetRank(t.Context(), coordinator.GroupRank{Group: any, TPRank: any, PPRank: any, PCPRank: any}))
	require.Zero(t, tokens())
}
