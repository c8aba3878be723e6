package lookup

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// leasingStore is a store with leases that records which keys it was asked for.
type leasingStore struct {
	lookuptest.KeyStore
	lease time.Duration
	err   error

	mu    sync.Mutex
	calls [][]string
}

func (s *leasingStore) Lease() backend.Lease { return backend.Lease{Duration: s.lease} }

func (s *leasingStore) Exists(ctx context.Context, keys backend.Keys, peek bool) ([]int, error) {
	s.mu.Lock()
	s.calls = append(s.calls, keys.Strings())
	s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return s.KeyStore.Exists(ctx, keys, peek)
}

// asked returns the keys of all calls since the last time.
func (s *leasingStore) asked() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, call := range s.calls {
		keys = append(keys, call...)
	}
	s.calls = nil
	return keys
}

// renewedPool has two ranks, and beside a full group one with a window of two blocks, of which a saver keeps
// one block in two.
var renewedPool = coordinator.Pool{VLLM: "0.28.0", HashBlockSize: 16, SchedulerBlockSize: 32, TPSize: 2, NumKVHead: 2, Groups: []coordinator.Group{
	{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 17},
}}

// What a saver would ask for is asked for, on all ranks, once a lease.
func TestRenew(t *testing.T) { synctest.Test(t, testRenew) }

func testRenew(t *testing.T) {
	store := &leasingStore{lease: time.Hour}
	s, err := NewService(ServiceConfig{Pool: renewedPool, Backend: store, Remote: RemoteConfig{Timeout: lookuptest.Patience}})
	require.NoError(t, err)
	hashes := coordinator.NewHashes(lookuptest.Chain("a", 6, 32), 32)
	now := int64(1)
	s.remote.shared.memory.renewed.now = func() int64 { return now }
	keysOf := func(from, to int) (keys []string) {
		for group, step := range []int{1, 2} {
			for rank := range 2 {
				prefix := s.coord.KeyPrefix(group, s.coord.Ranks(group)[rank])
				for i := from + step - 1; i < to; i += step {
					keys = append(keys, prefix+fmt.Sprintf("%x", hashes.At(i)))
				}
			}
		}
		return keys
	}
	first := coordinator.NewHashes(hashes.Bytes()[:4*32], 32)
	require.NoError(t, s.Renew(t.Context(), first))
	require.ElementsMatch(t, keysOf(0, 4), store.asked())
	require.NoError(t, s.Renew(t.Context(), hashes))
	require.ElementsMatch(t, keysOf(4, 6), store.asked(), "the others were asked within the lease")
	now += int64(store.lease)
	store.err = context.DeadlineExceeded
	require.ErrorIs(t, s.Renew(t.Context(), first), context.DeadlineExceeded)
	require.NotEmpty(t, store.asked())
	store.err = nil
	require.NoError(t, s.Renew(t.Context(), first))
	require.ElementsMatch(t, keysOf(0, 4), store.asked(), "a call that failed renews nothing")

	s.remote.shared.memory.present.setKeep(int64(store.lease))
	store.Keys = map[string]bool{}
	for rank := range 2 {
		store.Keys[s.coord.KeyPrefix(0, s.coord.Ranks(0)[rank])+fmt.Sprintf("%x", hashes.At(4))] = true
	}
	store.Keys[s.coord.KeyPrefix(0, s.coord.Ranks(0)[1])+fmt.Sprintf("%x", hashes.At(5))] = true
	now += int64(store.lease)
	s.remote.shared.memory.present.now = func() int64 { return now }
	require.NoError(t, s.Renew(t.Context(), hashes))
	require.Len(t, store.asked(), 18)
	now++
	require.Equal(t, uint64(1<<4), s.remote.shared.memory.present.lookup(s.remote.groups[0], hashes, 0, 1, 0b111111, int64(store.lease)), "those on all ranks count as found")

	found := s.remote.shared.memory.present.begin()
	other := coordinator.NewHashes(lookuptest.Chain("b", 2, 32), 32)
	for g := range 2 {
		s.remote.shared.memory.present.add(found, s.remote.groups[g], other, 0, 1, 0b11)
	}
	require.NoError(t, s.Renew(t.Context(), other))
	require.Empty(t, store.asked(), "a lookup has found them")

	stat := s.Stat()
	require.EqualValues(t, 12+6+12+18, stat.RenewedKeys)
	require.Zero(t, stat.BackendKeys+stat.Lookups, "no lookup's")

	s.remote.shared.memory.epoch.begin()
	require.NoError(t, s.Renew(t.Context(), other))
	require.Len(t, store.asked(), 6, "of an older epoch")
}

// Calls are small, and spread over a part of the lease, also while lookups never pause.
func TestRenewalsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		store := &leasingStore{lease: 10 * time.Second}
		store.Before = func(context.Context, string, []string) error { at = append(at, time.Since(began)); return nil }
		s, err := NewService(ServiceConfig{Pool: renewedPool, Backend: store, Remote: RemoteConfig{Timeout: lookuptest.Patience}})
		require.NoError(t, err)
		require.NoError(t, s.Renew(t.Context(), coordinator.NewHashes(lookuptest.Chain("a", 1000, 32), 32)))
		for _, call := range store.calls {
			require.LessOrEqual(t, len(call), renewKeys)
		}
		require.Len(t, store.asked(), 2*(1000+500))
		require.Len(t, at, 8+4)
		require.Zero(t, at[0])
		require.Less(t, at[11], store.lease/2)
		for i := range at[1:] { // the second group may have up to 8 calls
			require.Greater(t, at[i+1]-at[i], store.lease*3/8/16)
			require.LessOrEqual(t, at[i+1]-at[i], store.lease*3/8/4)
		}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		require.ErrorIs(t, s.Renew(ctx, coordinator.NewHashes(lookuptest.Chain("b", 1000, 32), 32)), context.Canceled)
		store.Before = func(context.Context, string, []string) error { time.Sleep(store.lease / 4); return nil }
		err = s.Renew(t.Context(), coordinator.NewHashes(lookuptest.Chain("c", 1000, 32), 32))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "renew: half a lease was over before the store was asked for all")
	})
}

// Of states the one at the end is renewed, as a mask does not name them.
func TestRenewStates(t *testing.T) {
	store := &leasingStore{lease: time.Hour}
	pool := coordinator.Pool{VLLM: coordinator.NewestRelease(), HashBlockSize: 16, SchedulerBlockSize: 32, Groups: []coordinator.Group{
		{Kind: coordinator.Mamba, BlockSize: 32},
	}}
	s, err := NewService(ServiceConfig{Pool: pool, Backend: store})
	require.NoError(t, err)
	require.True(t, s.coord.StoresStates(0))
	hashes := coordinator.NewHashes(lookuptest.Chain("a", 6, 32), 32)
	require.NoError(t, s.Renew(t.Context(), hashes))
	require.Equal(t, []string{s.coord.KeyPrefix(0, s.coord.Ranks(0)[0]) + fmt.Sprintf("%x", hashes.At(5))}, store.asked())
}

func TestNothingToRenew(t *testing.T) {
	hashes := coordinator.NewHashes(lookuptest.Chain("a", 2, 32), 32)
	for name, cfg := range map[string]ServiceConfig{
		"memory":    {},
		"no leases": {Backend: &lookuptest.KeyStore{}},
		"never":     {Backend: &leasingStore{lease: time.Hour}, Remote: RemoteConfig{Renew: RenewNever}},
	} {
		cfg.Pool = renewedPool
		s, err := NewService(cfg)
		require.NoError(t, err)
		require.Equal(t, RenewNever, s.Backend().Info().Renewal, name)
		require.ErrorIs(t, s.Renew(t.Context(), hashes), ErrUnsupported, name)
	}
	s, err := NewService(ServiceConfig{Pool: renewedPool, Backend: &leasingStore{lease: time.Hour}})
	require.NoError(t, err)
	require.Equal(t, RenewAuto, s.Backend().Info().Renewal)
	require.ErrorIs(t, s.Renew(t.Context(), coordinator.Hashes{}), ErrHashLen)
}
