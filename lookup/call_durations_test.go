package lookup

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// callsWithin returns how many calls of each kind were counted, by the bound of their bucket in seconds.
func callsWithin(t *testing.T, s *Service) map[string]map[float64]uint64 {
	t.Helper()
	got := map[string]map[float64]uint64{}
	all := s.remote.shared.CallDurations()
	require.Len(t, all, int(numCalls))
	for call, h := range all {
		for i, n := range h.Counts {
			if n > 0 {
				if got[call] == nil {
					got[call] = map[float64]uint64{}
				}
				got[call][h.Bounds[i]] = n
			}
		}
	}
	return got
}

// Each call of a backend counts under its name with its duration, for all services of the backend together.
func TestCallDurations(t *testing.T) {
	require.True(t, slices.IsSorted(callBounds[:]))
	synctest.Test(t, func(t *testing.T) {
		store := &lookuptest.KeyStore{Before: func(_ context.Context, op string, _ []string) error {
			time.Sleep(map[string]time.Duration{
				"exists": 3 * time.Millisecond, "store": 30 * time.Millisecond, "evict": 300 * time.Millisecond, "reset": 3 * time.Second,
			}[op])
			return nil
		}}
		shared := NewSharedBackend(store, RemoteConfig{Timeout: time.Minute, WriteTimeout: time.Minute}, nil)
		var s *Service
		hashes := coordinator.NewHashes(lookuptest.Chain("a", 8, 32), 32)
		for range 2 {
			var err error
			s, err = NewService(ServiceConfig{Pool: blocks16.Pool, Shared: shared})
			require.NoError(t, err)
			require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, hashes))
			_, err = s.Explain(t.Context(), 128, hashes)
			require.NoError(t, err)
			require.NoError(t, s.Evict(t.Context(), coordinator.GroupRank{}, hashes))
			require.NoError(t, s.Reset(t.Context()))
		}
		require.Equal(t, map[string]map[float64]uint64{
			"exists": {0.005: 2}, "store": {0.05: 2}, "evict": {0.5: 2}, "reset": {5: 2},
		}, callsWithin(t, s))
		require.InDelta(t, 0.6, shared.CallDurations()["evict"].Sum, 1e-9)
	})
}

// An abandoned call counts with the time for which it was waited for. The wait of a later one for it does not
// count, nor does a call that was never made.
func TestDurationsOfAbandonedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		s, err := NewService(ServiceConfig{
			Pool: blocks16.Pool, Backend: ignoresContext{keyStore: stuckStore(open)}, Remote: RemoteConfig{WriteTimeout: time.Second, BreakerFailures: 1},
		})
		require.NoError(t, err)
		hashes := coordinator.NewHashes(lookuptest.Chain("a", 8, 32), 32)
		require.ErrorIs(t, s.Store(t.Context(), coordinator.GroupRank{}, hashes), context.DeadlineExceeded)
		require.Equal(t, map[string]map[float64]uint64{"store": {2: 1}}, callsWithin(t, s))
		_, err = s.Lookup(t.Context(), 128, hashes) // the breaker is open
		require.NoError(t, err)
		require.Equal(t, map[string]map[float64]uint64{"store": {2: 1}}, callsWithin(t, s))
		time.Sleep(time.Minute) // the breaker is half open
		time.AfterFunc(500*time.Millisecond, func() { close(open) })
		require.NoError(t, s.Reset(t.Context()))
		require.Equal(t, map[string]map[float64]uint64{"store": {2: 1}, "reset": {2e-5: 1}}, callsWithin(t, s))
	})
}
