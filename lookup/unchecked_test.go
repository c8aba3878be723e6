package lookup

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// The hashes that a lookup keeps for positions that it does not check are bounded.
func TestUncheckedHashesAreBounded(t *testing.T) {
	s, err := NewService(ServiceConfig{
		Pool: coordinator.Pool{
			VLLM: "0.25.1", SchedulerBlockSize: 1024,
			Groups: []coordinator.Group{{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 128}},
		},
		Memory: index.Config{MaxBytes: index.MinMaxBytes},
	})
	require.NoError(t, err)
	const n = 20000
	hashes := netproto.NewHashes(lookuptest.Chain("a", n, 32), 32)
	require.NoError(t, s.Store(context.Background(), GroupRank{}, hashes))
	q := s.NewQuery()
	defer q.Release()
	wanted, err := q.Begin(16*n-16*n%1024, false, 32, n)
	require.NoError(t, err)
	require.True(t, wanted)
	q.Add(hashes.Bytes())
	require.Len(t, q.unchecked.blocks, maxUnchecked)
	hit, err := q.Finish()
	require.NoError(t, err)
	require.LessOrEqual(t, hit.Tokens, int64(16*n))
}
