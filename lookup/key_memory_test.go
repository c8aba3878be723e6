package lookup

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
)

// TestKeysInAccount has the account refuse the keys of a request: it is answered at once,
// without a call. Keys are charged until the call that has them returns.
func TestKeysInAccount(t *testing.T) {
	const blocks = 100
	keys := lookuptest.Chain("a", blocks, 32)
	hashes := coordinator.NewHashes(keys, 32)
	for _, strategy := range []Strategy{Gallop, SingleCall} {
		synctest.Test(t, func(t *testing.T) {
			account, open := NewMemoryAccount(4_000_000), make(chan struct{})
			s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: ignoresContext{stuckStore(open)}, Remote: RemoteConfig{Strategy: strategy, Memory: account}})
			require.NoError(t, err)
			held := func() int64 {
				bytes, _, _ := account.Usage()
				return bytes
			}
			look := func(want int64) {
				hit, err := s.Lookup(t.Context(), blocks*16, hashes)
				require.NoError(t, err)
				require.Equal(t, want, hit.Tokens)
			}

			require.True(t, account.Reserve(3_999_999)) // by others
			_, err = s.Lookup(t.Context(), blocks*16, hashes)
			require.ErrorIs(t, err, ErrNoMemory)
			_, err = s.Explain(t.Context(), blocks*16, hashes)
			require.ErrorIs(t, err, ErrNoMemory)
			stat := s.Stat()
			require.EqualValues(t, 2, stat.BackendRejected)
			require.Zero(t, stat.BackendErrors+stat.BackendTimeouts)
			require.Zero(t, s.remote.rounds.Load())
			require.EqualValues(t, 3_999_999, held())
			account.Free(3_999_999)

			look(0) // it times out, and its call goes on
			require.EqualValues(t, 1, s.Stat().BackendTimeouts)
			require.Positive(t, held())
			close(open)
			synctest.Wait()
			require.Zero(t, held())
			look(blocks * 16)
			require.Zero(t, held())
			require.True(t, s.remote.keyMemory.small.TryAcquire(s.remote.cfg.MaxKeyBytes/4), "no key memory is lost")
		})
	}
}

// TestEstimateCoversAnswers checks that the memory of a call's keys has 8 bytes for each
// answer, beside the keys and a copy of them.
func TestEstimateCoversAnswers(t *testing.T) {
	coord, err := coordinator.New(coordinator.Pool{ModelName: "m", HashBlockSize: 16})
	require.NoError(t, err)
	store := &sizedStore{}
	const blocks = 50
	_, err = coord.Lookup(16*blocks, coordinator.NewHashes(lookuptest.Chain("a", blocks, 32), 32), store)
	require.NoError(t, err)
	require.EqualValues(t, 2*store.textBytes+blocks*(16+8), store.reserved)
}

// sizedStore counts what a lookup reserves, and the bytes of its keys.
type sizedStore struct{ reserved, textBytes int64 }

func (s *sizedStore) Reserve(bytes int64) error {
	s.reserved += bytes
	return nil
}

func (s *sizedStore) Pause() {}

func (s *sizedStore) Exists(keys []string) ([]int, error) {
	for _, key := range keys {
		s.textBytes += int64(len(key))
	}
	return make([]int, len(keys)), nil
}

// TestPausePassesTheTokenOn has a lookup wait while a long one builds keys on the only processor that
// may: it gets its turn at the next pause.
func TestPausePassesTheTokenOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: &lookuptest.KeyStore{}})
		require.NoError(t, err)
		s.remote.cpu = make(chan struct{}, 1)
		long := s.remote.lease(t.Context())
		var began atomic.Bool
		go func() {
			short := s.remote.lease(t.Context())
			began.Store(true)
			short.end()
		}()
		synctest.Wait()
		require.False(t, began.Load())
		long.Pause()
		require.True(t, began.Load())
		require.Len(t, s.remote.cpu, 1, "and then it is the long one's again")
		long.end()
		require.Empty(t, s.remote.cpu)
	})
}

// TestKeyMemoryConcurrently has many requests acquire and release: no byte is lost.
func TestKeyMemoryConcurrently(t *testing.T) {
	account := NewMemoryAccount(5_000)
	m := newKeyMemory(60_000, account)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 1000 {
				if keys, err := m.acquire(t.Context(), int64(i)*1000); err == nil {
					keys.release()
				}
			}
		})
	}
	all.Wait()
	bytes, _, _ := account.Usage()
	require.Zero(t, bytes)
	require.True(t, m.small.TryAcquire(15_000))
	require.True(t, m.large.TryAcquire(45_000))
}
