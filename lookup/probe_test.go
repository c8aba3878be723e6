package lookup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// proberStore is a store that leases what it finds, and can be asked without. It counts calls.
type proberStore struct {
	lookuptest.KeyStore
	asked, probed int
	held          chan struct{} // if set, Probe waits until it is closed
}

func (*proberStore) Lease() backend.Lease {
	return backend.Lease{Duration: time.Hour, Stated: time.Hour}
}

func (s *proberStore) Exists(ctx context.Context, keys backend.Keys) ([]int, error) {
	s.asked++
	return s.KeyStore.Exists(ctx, keys)
}

func (s *proberStore) Probe(ctx context.Context, keys backend.Keys) ([]int, error) {
	s.probed++
	if s.held != nil {
		<-s.held
	}
	return s.KeyStore.Exists(ctx, keys)
}

// What nobody is about to load is probed. A lookup of the same prompt asks for itself meanwhile, and probes
// are then answered from what it has found.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &proberStore{}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
		require.NoError(t, err)
		hashes := coordinator.NewHashes(lookuptest.Chain("a", 10, 32), 32)
		require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, hashes))
		hit, err := s.ProbePrompt(t.Context(), 160, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 160, hit.Tokens)
		e, err := s.Explain(t.Context(), 160, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 160, e.HitTokens)
		require.Equal(t, [2]int{0, 2}, [2]int{store.asked, store.probed})

		store.held = make(chan struct{})
		probed := make(chan int64)
		go func() {
			hit, _ := s.ProbePrompt(t.Context(), 160, hashes)
			probed <- hit.Tokens
		}()
		synctest.Wait()
		require.Equal(t, [2]int{0, 3}, [2]int{store.asked, store.probed})
		hit, err = s.Lookup(t.Context(), 160, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 160, hit.Tokens)
		require.Equal(t, [2]int{1, 3}, [2]int{store.asked, store.probed})
		close(store.held)
		require.EqualValues(t, 160, <-probed)
		hit, err = s.ProbePrompt(t.Context(), 160, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 160, hit.Tokens)
		require.Equal(t, [2]int{1, 3}, [2]int{store.asked, store.probed})
		require.EqualValues(t, 4, s.Stat().Lookups)
	})
}
