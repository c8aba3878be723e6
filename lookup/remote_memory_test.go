package lookup

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
)

// TestReserve fills MaxBytes with the hashes of large requests: a quarter is left for small
// ones.
func TestReserve(t *testing.T) {
	account := NewMemoryAccount(0)
	b := NewSharedBackend(&lookuptest.KeyStore{}, RemoteConfig{MaxBytes: 4096 * 100, Memory: account}, nil)
	require.True(t, b.IsSmall(100))
	require.False(t, b.IsSmall(101))
	held := func(want int64) {
		t.Helper()
		bytes, _, _ := account.Usage()
		require.Equal(t, want, bytes)
		require.Equal(t, want, b.hashes.all.Load())
	}
	large := 0
	for b.Reserve(1024, 1<<20) {
		large++
	}
	require.Equal(t, 300, large, "three quarters")
	held(300 << 10)
	small := 0
	for b.Reserve(100, 100) {
		small++
	}
	require.Equal(t, 1024, small, "the rest")
	require.False(t, b.Reserve(1, 1))
	held(400 << 10)
	b.Free(1024, 1<<20)
	require.True(t, b.Reserve(1024, 1<<20), "it was freed where it was taken")
	for range small {
		b.Free(100, 100)
	}
	require.False(t, b.Reserve(1, 1<<20), "small ones leave nothing to large ones")
	held(300 << 10)
	for range large {
		b.Free(1024, 1<<20)
	}
	held(0)
	require.Zero(t, b.hashes.large.Load())
}

// TestReserveAccount has the account refuse hashes that MaxBytes allows.
func TestReserveAccount(t *testing.T) {
	account := NewMemoryAccount(16_000)
	b := NewSharedBackend(&lookuptest.KeyStore{}, RemoteConfig{Memory: account}, nil)
	require.EqualValues(t, 3000, b.Config().MaxBytes)
	require.True(t, account.Reserve(15_000)) // by others
	for _, needed := range []int{600, 1 << 20} {
		require.True(t, b.Reserve(600, needed))
		require.False(t, b.Reserve(600, needed))
		b.Free(600, needed)
		require.Zero(t, b.hashes.all.Load())
		require.Zero(t, b.hashes.large.Load())
	}
	bytes, _, refused := account.Usage()
	require.EqualValues(t, 15_000, bytes)
	require.EqualValues(t, 2, refused)
}

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
			look(0)
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

// fill takes all tokens.
func fill(tokens chan struct{}) {
	for len(tokens) < cap(tokens) {
		tokens <- struct{}{}
	}
}

// TestSmallLookupsHaveCPU has long lookups hold all the tokens that they may hold. A small
// lookup does not wait for them. One of few hashes on very many ranks is no small one.
func TestSmallLookupsHaveCPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lookuptest.KeyStore{}
		pool := coordinator.Pool{ModelName: "m", TPSize: 8, NumKVHead: 8, HashBlockSize: 16}
		s, err := NewService(ServiceConfig{Pool: pool, Backend: store, Remote: RemoteConfig{Strategy: SingleCall, MaxKeyBytes: 32 * 250_000}})
		require.NoError(t, err)
		look := func(blocks int) (asked int64) {
			before := store.Calls.Load()
			_, err := s.Lookup(t.Context(), int64(blocks)*16, coordinator.NewHashes(lookuptest.Chain("a", blocks, 32), 32))
			require.NoError(t, err)
			return store.Calls.Load() - before
		}
		fill(s.remote.cpuTokens)
		require.EqualValues(t, 1, look(10))
		require.Zero(t, look(1000), "few hashes, many keys")
		require.Zero(t, look(2049), "many hashes")
		require.Empty(t, s.remote.smallCPUTokens, "all are free again")

		fill(s.remote.smallCPUTokens)
		require.Zero(t, look(10))
		<-s.remote.cpuTokens
		require.EqualValues(t, 1, look(10), "a small lookup takes a token of either kind")
		require.EqualValues(t, 1, look(1000))
		require.EqualValues(t, 1, look(2049))
		require.Len(t, s.remote.cpuTokens, cap(s.remote.cpuTokens)-1)
	})
}

// TestReserveConcurrently has many requests reserve and free: no byte is lost.
func TestReserveConcurrently(t *testing.T) {
	account := NewMemoryAccount(50_000)
	b := NewSharedBackend(&lookuptest.KeyStore{}, RemoteConfig{MaxBytes: 60_000, Memory: account}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 1000 {
				if b.Reserve(10_000, i*10_000) {
					b.Free(10_000, i*10_000)
				}
				if keys, err := b.keyMemory.acquire(ctx, int64(i)*1000); err == nil {
					keys.release()
				}
			}
		})
	}
	all.Wait()
	bytes, _, _ := account.Usage()
	require.Zero(t, bytes)
	require.Zero(t, b.hashes.all.Load()+b.hashes.large.Load())
}
