package lookup

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// TestHybridLookupsDoNotAllocate looks up chains whose keys lie in many pieces of the log, for
// full attention, a window and mamba. It begins when lookups apply to the order of eviction what
// they have found.
func TestHybridLookupsDoNotAllocate(t *testing.T) {
	if bufpool.Debug || lookuptest.Race {
		t.Skip("the traps of debug builds and the race detector allocate")
	}
	const piece = 16 // hashes
	for n, rounds := range map[int]int{64: 4000, 8192: 200} {
		t.Run(fmt.Sprintf("hashes=%d", n), func(t *testing.T) {
			service, err := NewService(ServiceConfig{Pool: hybridPool})
			require.NoError(t, err)
			chain, other := lookuptest.Chain("a", n, 32), lookuptest.Chain("b", n, 32)
			for i := 0; i < n*32; i += piece * 32 {
				for _, c := range [][]byte{chain, other} {
					require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(c[i:i+piece*32], 32)))
				}
			}
			lookuptest.StorePrefix(t, service, chain, n)
			hashes := coordinator.NewHashes(chain, 32)
			round := func() {
				if hit, err := service.Lookup(t.Context(), int64(16*n), hashes); err != nil || hit.Tokens != int64(16*n) {
					t.Error(hit, err)
				}
			}
			for range rounds {
				round()
			}
			require.Zero(t, testing.AllocsPerRun(rounds, round))
		})
	}
}

// A lookup is large if it has very many runs, or positions.
func TestIsLarge(t *testing.T) {
	for _, tc := range []struct {
		hashes, stored int // of each 2
		want           bool
	}{{131_072, 2, false}, {131_072, 0, false}, {2048, 1, false}, {8192, 1, false}, {32_768, 1, true}} {
		s, err := NewService(ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16, VLLM: coordinator.NewestRelease(), Groups: []coordinator.Group{
			{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 1024},
		}}})
		require.NoError(t, err)
		chain := lookuptest.Chain("a", tc.hashes, 32)
		for i := 0; i < tc.hashes && tc.stored == 1; i += 2 {
			require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(chain[32*i:32*i+32], 32)))
		}
		if tc.stored == 2 {
			require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(chain, 32)))
		}
		q := s.memory.NewQuery()
		_, err = q.Begin(uint64(16*tc.hashes), false, 0, 32, tc.hashes)
		require.NoError(t, err)
		for rest := chain; len(rest) > 0; rest = rest[min(len(rest), 64<<10):] {
			q.Add(rest[:min(len(rest), 64<<10)])
		}
		large := q.IsLarge()
		began := time.Now()
		_, err = q.Finish()
		require.NoError(t, err)
		t.Logf("%+v: %v", tc, time.Since(began))
		require.Equal(t, tc.want, large, "%+v", tc)
		q.Release()
		require.False(t, s.memory.NewQuery().IsLarge())
	}
}
