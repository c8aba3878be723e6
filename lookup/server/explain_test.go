package server

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// TestExplainOverTheWire stores a hybrid pool of two ranks stretch by stretch, as
// workers that follow the store mask would, and asks why a prompt misses.
func TestExplainOverTheWire(t *testing.T) {
	pool := coordinator.Pool{
		HashBlockSize: 16, TPSize: 2,
		Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 64},
			{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32},
		},
	}
	server := startServer(t, lookup.ServiceConfig{Pool: pool}, Limits{})
	c := dialTest(t, server)
	ctx := context.Background()
	raw := lookuptest.Chain("a", 32, 32) // 512 tokens
	hashes := coordinator.NewHashes(raw, 32)
	coord, err := coordinator.New(pool)
	require.NoError(t, err)
	masks, err := coord.StoreMask(512, 0, coordinator.NoPrompt)
	require.NoError(t, err)
	storeMasked := func(g, tp int, upTo int) {
		for start, end := range masks[g].Runs() {
			var stretch []byte
			for i := start; i < min(end, int64(upTo)); i++ {
				stretch = append(stretch, hashes.At(coordinator.KeyIndex(int(i), coord.Stride(g)))...)
			}
			if len(stretch) > 0 {
				require.NoError(t, c.Store(ctx, coordinator.GroupRank{Group: uint16(g), TPRank: uint16(tp)}, coordinator.NewHashes(stretch, 32)))
			}
			if end >= int64(upTo) {
				break
			}
		}
	}
	explain := func(tokens uint32) api.Explanation {
		t.Helper()
		e, err := c.Explain(ctx, int64(tokens), coordinator.NewHashes(raw, 32))
		require.NoError(t, err)
		hit, err := c.Lookup(ctx, int64(tokens), coordinator.NewHashes(raw, 32))
		require.NoError(t, err)
		require.Equal(t, hit.Tokens, e.HitTokens)
		return e
	}
	block := func(i int64) *int64 { return &i }

	for tp := range 2 {
		storeMasked(0, tp, 8)
		storeMasked(1, tp, 32)
	}
	e := explain(512)
	require.EqualValues(t, 512, e.HitTokens)
	require.Equal(t, coordinator.ReasonComplete, e.Groups[0].Reason)
	require.Equal(t, coordinator.ReasonComplete, e.Groups[1].Reason)

	require.NoError(t, c.Evict(ctx, coordinator.GroupRank{Group: 0, TPRank: 1}, coordinator.NewHashes(hashes.At(4*4+3), 32))) // chunk 4, one rank
	require.NoError(t, c.Evict(ctx, coordinator.GroupRank{Group: 1, TPRank: 0}, coordinator.NewHashes(hashes.At(31), 32)))
	require.NoError(t, c.Evict(ctx, coordinator.GroupRank{Group: 1, TPRank: 1}, coordinator.NewHashes(hashes.At(31), 32)))
	e = explain(512)
	require.Equal(t, api.Explanation{HitTokens: 256, Groups: []api.GroupExplanation{
		{
			Group: 0, Kind: coordinator.FullAttention, EndTokens: 256, Reason: coordinator.ReasonRank, FirstMissingBlock: block(4),
			MissingRank: &api.MissingRank{TPRank: 1}, MissingRanks: 1, GapStart: block(4), GapEnd: block(5),
		},
		{Group: 1, Kind: coordinator.SlidingWindow, EndTokens: 448, Reason: coordinator.ReasonWindow, FirstMissingBlock: block(31), GapStart: block(31), GapEnd: block(32)},
	}}, e)

	for tp := range uint16(2) { // now on no rank: the first miss must not hide the rest
		require.NoError(t, c.Evict(ctx, coordinator.GroupRank{Group: 0, TPRank: tp}, coordinator.NewHashes(hashes.At(2*4+3), 32)))
	}
	e = explain(512)
	require.EqualValues(t, 128, e.HitTokens)
	require.Equal(t, api.GroupExplanation{EndTokens: 128, Reason: coordinator.ReasonMissing, FirstMissingBlock: block(2), GapStart: block(2), GapEnd: block(3)}, e.Groups[0])
	require.EqualValues(t, 448, e.Groups[1].EndTokens)
	require.Equal(t, block(31), e.Groups[1].FirstMissingBlock)

	text, err := json.Marshal(e.Groups[0])
	require.NoError(t, err)
	require.JSONEq(t, `{"group":0,"kind":"full_attention","end_tokens":128,"reason":"missing_block","first_missing_block":2,"gap_start":2,"gap_end":3}`, string(text))

	lookups := statOf(t, c).Lookups
	_, err = c.Explain(ctx, 512, coordinator.NewHashes(raw, 32))
	require.NoError(t, err)
	require.Equal(t, lookups, statOf(t, c).Lookups, "explaining does not count")
	_, err = c.Explain(ctx, 17, coordinator.NewHashes(raw, 32))
	require.ErrorIs(t, err, client.ErrRefused)
	e, err = c.Explain(ctx, 512, coordinator.NewHashes(nil, 0))
	require.NoError(t, err)
	require.Equal(t, coordinator.ReasonNothing, e.Groups[1].Reason)
}
