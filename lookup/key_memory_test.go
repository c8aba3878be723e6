package lookup

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/lookuptest"
)

// Keys are charged until the call that has them has ended, also to an account that is full: they have a part of it.
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

		account.Charge(3_999_999) // by others
		var waiting sync.WaitGroup
		waiting.Go(func() { look(0) })
		synctest.Wait()
		require.Greater(t, held(), int64(4_000_000))
		require.Equal(t, s.remote.shared.keys.Held(), held()-3_999_999)
		waiting.Wait()
		require.EqualValues(t, 1, s.Stat().BackendTimeouts)
		require.EqualValues(t, 3_999_999, held())
		late = false
		look(blocks * 16)
		require.EqualValues(t, 3_999_999, held())
		require.Zero(t, s.remote.shared.keys.Held())
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
	coordinator.RemembersNothing
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

// takeLarge takes the tokens that large lookups may have.
func takeLarge(s *Service) {
	for s.remote.shared.cpu.Admit(1, false, 0) {
	}
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
		takeLarge(s)
		held := s.remote.shared.cpu.Held()
		require.EqualValues(t, 1, look(10))
		require.Zero(t, look(1000), "few hashes, many keys")
		require.EqualValues(t, 1, s.Stat().BackendTimeouts)
		require.Equal(t, held, s.remote.shared.cpu.Held(), "all are free again")
		s.remote.shared.cpu.Free(1, false)
		require.EqualValues(t, 1, look(1000))
		require.Equal(t, held-1, s.remote.shared.cpu.Held())
	})
}

// A lookup that compares many blocks lets others go on meanwhile.
func TestComparingTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewService(ServiceConfig{Pool: coordinator.Pool{}, Backend: hourLease{&lookuptest.KeyStore{}}})
		require.NoError(t, err)
		s.remote.shared.cpu = admission.New(1)
		hashes := coordinator.NewHashes(lookuptest.Chain("a", 64, 32), 32)
		l, others := s.remote.newLookup(t.Context(), modeAsk, 0), 0
		defer l.end()
		for i := range 4 * quotaBlocks / 64 {
			if i%(quotaBlocks/64) == 0 {
				go func() {
					other := s.remote.newLookup(t.Context(), modeAsk, 0)
					others++
					other.end()
				}()
				synctest.Wait()
			}
			compare := l.Remembered
			if i%2 == 0 {
				compare = func(g int, hashes coordinator.Hashes, first, stride int, blocks uint64) uint64 {
					l.Remember(g, hashes, first, stride, blocks)
					return 0
				}
			}
			compare(0, hashes, 0, 1, ^uint64(0))
			require.Equal(t, (i+1)*64/quotaBlocks, others, i)
		}
	})
}
