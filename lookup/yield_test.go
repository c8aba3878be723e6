package lookup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
)

// Keys of lookups and of changes are built with yields between them.
func TestKeysAreBuiltWithYields(t *testing.T) {
	s, err := NewService(ServiceConfig{Pool: lookuptest.Blocks16, Backend: &lookuptest.KeyStore{}, Remote: patient})
	require.NoError(t, err)
	yields := 0
	s.remote.yielder.yieldCPU, s.remote.yielder.now = func() { yields++ }, func() time.Duration { return 0 }
	const n = 10 * coordinator.PauseEvery
	hashes := coordinator.NewHashes(lookuptest.Chain("a", n, 32), 32)
	require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, hashes))
	require.Equal(t, 10, yields)
	yields = 0
	hit, err := s.Lookup(t.Context(), 16*n, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 16*n, hit.Tokens)
	require.GreaterOrEqual(t, yields, 8)
}

// After a yield that took long nobody yields for a while.
func TestYieldStopsWhereItIsLong(t *testing.T) {
	var now, takes time.Duration
	made := 0
	y := yielder{yieldCPU: func() { now += takes; made++ }, now: func() time.Duration { return now }}
	yield := func(times int) int {
		made = 0
		for range times {
			now += time.Microsecond
			y.yield()
		}
		return made
	}
	takes = longYield
	require.Equal(t, 100, yield(100))
	takes = longYield + 1
	require.Equal(t, 1, yield(100))
	now += yieldPause
	takes = 0
	require.Equal(t, 100, yield(100))
}
