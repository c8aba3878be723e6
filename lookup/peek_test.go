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

// peekStore is a store that leases what it finds, and can be asked without. It counts calls.
type peekStore struct {
	lookuptest.KeyStore
	asked, peeked int
	held          chan struct{} // if set, a peek waits until it is closed
}

func (*peekStore) Lease() backend.Lease {
	return backend.Lease{Duration: time.Hour, Stated: time.Hour}
}

func (s *peekStore) Exists(ctx context.Context, keys backend.Keys, peek bool) ([]int, error) {
	if !peek {
		s.asked++
	} else if s.peeked++; s.held != nil {
		<-s.held
	}
	return s.KeyStore.Exists(ctx, keys, peek)
}

// What nobody is about to load is peeked, by equal peeks once. A lookup of the same prompt asks for itself meanwhile,
// and peeks are then answered from what it has found.
func TestPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &peekStore{}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
		require.NoError(t, err)
		hashes := coordinator.NewHashes(lookuptest.Chain("a", 10, 32), 32)
		require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, hashes))
		hit, err := s.PeekPrompt(t.Context(), 160, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 160, hit.Tokens)
		e, err := s.Explain(t.Context(), 160, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 160, e.HitTokens)
		require.Equal(t, [2]int{0, 2}, [2]int{store.asked, store.peeked})

		store.held = make(chan struct{})
		peeked := make(chan int64)
		for range 2 {
			go func() {
				hit, _ := s.PeekPrompt(t.Context(), 160, hashes)
				peeked <- hit.Tokens
			}()
		}
		synctest.Wait()
		require.Equal(t, [2]int{0, 3}, [2]int{store.asked, store.peeked})
		hit, err = s.Lookup(t.Context(), 160, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 160, hit.Tokens)
		require.Equal(t, [2]int{1, 3}, [2]int{store.asked, store.peeked})
		close(store.held)
		require.EqualValues(t, 160, <-peeked)
		require.EqualValues(t, 160, <-peeked)
		hit, err = s.PeekPrompt(t.Context(), 160, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 160, hit.Tokens)
		require.Equal(t, [2]int{1, 3}, [2]int{store.asked, store.peeked})
		require.EqualValues(t, 5, s.Stat().Lookups)
	})
}
