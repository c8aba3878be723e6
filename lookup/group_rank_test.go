package lookup

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
	"github.com/hitline/hitline/internal/lookuptest"
)

// A place is refused, in process too, with what was asked for and what there is.
func TestGroupRanksThatCannotExist(t *testing.T) {
	window := coordinator.Group{Kind: coordinator.SlidingWindowMLA, BlockSize: 16, SlidingWindow: 64}
	mamba := coordinator.Group{Kind: coordinator.Mamba, BlockSize: 16}
	full := coordinator.Group{BlockSize: 16}
	for _, tc := range []struct {
		name string
		pool coordinator.Pool
		at   coordinator.GroupRank
		err  string // empty: there is such a place
	}{
		{"no such group", coordinator.Pool{}, coordinator.GroupRank{Group: 3}, "group 3, tp_rank 0, pp_rank 0, pcp_rank 0: the pool has group 0 to 0"},
		{"a number that stands for any", coordinator.Pool{}, coordinator.GroupRank{TPRank: coordinator.AnyRank}, "group 0, tp_rank any, pp_rank 0, pcp_rank 0: the group has tp_rank 0 to 0"},
		{"no such pipeline rank", coordinator.Pool{PPSize: 2}, coordinator.GroupRank{PPRank: 2}, "group 0, tp_rank 0, pp_rank 2, pcp_rank 0: the group has tp_rank 0 to 0, pp_rank 0 to 1, pcp_rank 0 to 0"},
		{"a rank of the engine that is no shard", coordinator.Pool{TPSize: 4, NumKVHead: 2}, coordinator.GroupRank{TPRank: 2}, "tp_rank 0 to 1, pp_rank 0 to 0, pcp_rank 0 to 0: tp_rank is the KV shard, the engine's tensor rank divided by the 2 ranks that hold equal blocks"},
		{"a shard", coordinator.Pool{TPSize: 4, NumKVHead: 2}, coordinator.GroupRank{TPRank: 1}, ""},
		{"no rank of the engine", coordinator.Pool{TPSize: 4, NumKVHead: 2}, coordinator.GroupRank{TPRank: 4}, "tp_rank 0 to 1, pp_rank 0 to 0, pcp_rank 0 to 0"},
		{"0.27.0: a shard", coordinator.Pool{VLLM: "0.28.0", TPSize: 4, NumKVHead: 2}, coordinator.GroupRank{TPRank: 1}, ""},
		{"0.27.0: no shard", coordinator.Pool{VLLM: "0.28.0", TPSize: 4, NumKVHead: 2}, coordinator.GroupRank{TPRank: 3}, "divided by the 2 ranks"},
		{"0.27.0: MLA holds one copy", coordinator.Pool{VLLM: "0.28.0", TPSize: 4, Groups: []coordinator.Group{full, window, mamba}}, coordinator.GroupRank{Group: 1, TPRank: 1}, "divided by the 4 ranks"},
		{"0.27.0: mamba is on every rank", coordinator.Pool{VLLM: "0.28.0", TPSize: 4, NumKVHead: 1, Groups: []coordinator.Group{full, window, mamba}}, coordinator.GroupRank{Group: 2, TPRank: 3}, ""},
		{"0.27.0: decode-context ranks are tensor ranks", coordinator.Pool{VLLM: "0.28.0", TPSize: 4, NumKVHead: 2, DCPSize: 2}, coordinator.GroupRank{TPRank: 3}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keys := conformance.Blob("place", 2, 32)
			store := &lookuptest.KeyStore{}
			for _, cfg := range []ServiceConfig{{Pool: tc.pool}, {Pool: tc.pool, Backend: store}} {
				service, err := NewService(cfg)
				require.NoError(t, err)
				for _, change := range []func(context.Context, coordinator.GroupRank, coordinator.Hashes) error{service.Store, service.Evict} {
					err := change(t.Context(), tc.at, coordinator.NewHashes(keys, 32))
					if tc.err == "" {
						require.NoError(t, err)
						continue
					}
					require.ErrorIs(t, err, ErrGroupRank)
					assert.ErrorContains(t, err, tc.err)
				}
			}
		})
	}
}
