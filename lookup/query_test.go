package lookup

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
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
			service, err := NewService(ServiceConfig{Pool: lookuptest.Pools()["hybrid"]})
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
