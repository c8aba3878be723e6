package lookup

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// TestKeysInAccount has the account refuse the keys of a request: it is answered at once,
// without a call. Keys are charged until the call that has them has ended.
func TestKeysInAccount(t *testing.T) {
	const blocks = 100
	keys := lookuptest.Chain("a", blocks, 32)
	hashes := coordinator.NewHashes(keys, 32)
	synctest.Test(t, func(t *testing.T) {
		account, late := NewMemoryAccount(4_000_000), true
		store := stuckStore(nil)
		store.Before = func(ctx context.Context, _ string, _ []string) error {
			if late {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: RemoteConfig{Memory: account}})
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

		var waiting sync.WaitGroup
		waiting.Go(func() { look(0) })
		synctest.Wait()
		require.Positive(t, held())
		waiting.Wait()
		require.EqualValues(t, 1, s.Stat().BackendTimeouts)
		require.Zero(t, held())
		late = false
		look(blocks * 16)
		require.Zero(t, held())
		require.True(t, s.remote.shared.keyMemory.small.TryAcquire(s.remote.shared.cfg.MaxKeyBytes/4), "no key memory is lost")
	})
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
type sizedStore struct {
	coordinator.NothingKnown
	reserved, textBytes int64
}

func (s *sizedStore) Reserve(bytes int64) error {
	s.reserved += bytes
	return nil
}

func (s *sizedStore) Exists(keys *coordinator.Keys) ([]int, error) {
	for _, key := range keys.Strings() {
		s.textBytes += int64(len(key))
	}
	return make([]int, keys.Len()), nil
}

// TestSmallRoundsHaveCPU has long lookups hold all their tokens. A lookup of few keys does not wait for
// them. One of few hashes on very many ranks has many keys.
func TestSmallRoundsHaveCPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lookuptest.KeyStore{}
		pool := coordinator.Pool{ModelName: "m", TPSize: 32, NumKVHead: 32, HashBlockSize: 16}
		s, err := NewService(ServiceConfig{Pool: pool, Backend: store})
		require.NoError(t, err)
		look := func(blocks int) (asked int64) {
			before := store.Calls.Load()
			_, err := s.Lookup(t.Context(), int64(blocks)*16, coordinator.NewHashes(lookuptest.Chain("a", blocks, 32), 32))
			require.NoError(t, err)
			return store.Calls.Load() - before
		}
		for range cap(s.remote.shared.cpu.large) {
			s.remote.shared.cpu.large <- struct{}{}
		}
		require.EqualValues(t, 1, look(10))
		require.Zero(t, look(1000), "few hashes, many keys")
		require.EqualValues(t, 1, s.Stat().BackendTimeouts)
		require.Empty(t, s.remote.shared.cpu.small, "all are free again")
		<-s.remote.shared.cpu.large
		require.EqualValues(t, 1, look(1000))
		require.Len(t, s.remote.shared.cpu.large, cap(s.remote.shared.cpu.large)-1)
	})
}

// A lookup that compares many blocks lets others go on meanwhile.
func TestComparingTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewService(ServiceConfig{Pool: coordinator.Pool{}, Backend: hourLease{&lookuptest.KeyStore{}}})
		require.NoError(t, err)
		s.remote.shared.cpu.small = make(chan struct{}, 1)
		l, others := s.remote.newLookup(t.Context(), lookupOptions{}), 0
		defer l.end()
		hashes := coordinator.NewHashes(lookuptest.Chain("a", 64, 32), 32)
		for i := range 4 * turnBlocks / 64 {
			if i%(turnBlocks/64) == 0 {
				go func() {
					other := s.remote.newLookup(t.Context(), lookupOptions{})
					others++
					other.end()
				}()
				synctest.Wait()
			}
			compare := l.Known
			if i%2 == 0 {
				compare = func(g int, hashes coordinator.Hashes, first, stride int, blocks uint64) uint64 {
					l.Found(g, hashes, first, stride, blocks)
					return 0
				}
			}
			compare(0, hashes, 0, 1, ^uint64(0))
			require.Equal(t, (i+1)*64/turnBlocks, others, i)
		}
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
