package lookup

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// twoPools returns services of two pools with equal keys over one store.
func twoPools(t *testing.T, store backend.Backend, cfg RemoteConfig) (a, b *Service) {
	t.Helper()
	shared := NewSharedBackend(store, cfg, nil)
	for _, s := range []**Service{&a, &b} {
		var err error
		*s, err = NewService(ServiceConfig{Pool: blocks16.Pool, Shared: shared})
		require.NoError(t, err)
	}
	return a, b
}

// An epoch begins with whatever may have removed keys, for all pools, and with nothing else.
func TestEpochs(t *testing.T) {
	keys := lookuptest.Chain("a", 4, 32)
	hashes := coordinator.NewHashes(keys, 32)
	lookup := func(ctx context.Context, s *Service) error { _, err := s.Lookup(ctx, 64, hashes); return err }
	store := func(ctx context.Context, s *Service) error { return s.Store(ctx, coordinator.GroupRank{}, hashes) }
	evict := func(ctx context.Context, s *Service) error { return s.Evict(ctx, coordinator.GroupRank{}, hashes) }
	reset := func(ctx context.Context, s *Service) error { return s.Reset(ctx) }
	readOnly := fmt.Errorf("%w: by this program", backend.ErrReadOnly)
	waits := errors.New("waits")
	for name, tc := range map[string]struct {
		do      func(ctx context.Context, s *Service) error
		fails   error // how the store fails
		begins  uint64
		sharing uint64 // of lookups of the pool: epochs that begin
	}{
		"a lookup":                      {do: lookup},
		"a lookup that fails":           {do: lookup, fails: lookuptest.ErrStore, begins: 1},
		"a lookup that is late":         {do: lookup, fails: waits},
		"a store":                       {do: store, sharing: 1},
		"a store that fails":            {do: store, fails: lookuptest.ErrStore, begins: 1, sharing: 2},
		"a store that is late":          {do: store, fails: waits, sharing: 1},
		"a store that is refused":       {do: store, fails: readOnly, sharing: 1},
		"an evict":                      {do: evict, begins: 1},
		"an evict that fails":           {do: evict, fails: lookuptest.ErrStore, begins: 1},
		"an evict that is refused":      {do: evict, fails: readOnly},
		"an evict that is late":         {do: evict, fails: waits, begins: 1},
		"a reset":                       {do: reset, begins: 1},
		"a reset that fails":            {do: reset, fails: lookuptest.ErrStore, begins: 1},
		"a reset that is refused":       {do: reset, fails: readOnly},
		"a reset that is refused later": {do: reset, fails: fmt.Errorf("%w: %w", backend.ErrPartlyDone, readOnly), begins: 1},
		"a reset that is late":          {do: reset, fails: waits, begins: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			backend := &lookuptest.KeyStore{Before: func(ctx context.Context, _ string, _ []string) error {
				if tc.fails == waits {
					cancel()
					<-ctx.Done()
					return ctx.Err()
				}
				return tc.fails
			}}
			a, b := twoPools(t, backend, patient)
			before, sharing := b.remote.shared.memory.epoch.now(), a.remote.sharingEpoch()
			_ = tc.do(ctx, a)
			require.Positive(t, backend.Calls.Load())
			require.Equal(t, tc.begins, b.remote.shared.memory.epoch.now()-before)
			require.Equal(t, max(tc.begins, tc.sharing), a.remote.sharingEpoch()-sharing)
		})
	}
}

// What a backend notices by itself begins an epoch, too, and is why the service is not ready.
func TestWatchedBackend(t *testing.T) {
	store := &statingStore{}
	a, _ := twoPools(t, store, patient)
	shared := a.Backend().Shared()
	before := shared.memory.epoch.now()
	store.generation.Add(1)
	require.Equal(t, before+1, shared.memory.epoch.now())
	require.False(t, shared.Down())
	require.NoError(t, shared.Failure())
	gone := fmt.Errorf("%w: nothing listens there", backend.ErrUnavailable)
	store.failure.Store(&gone)
	require.True(t, shared.Down())
	require.Equal(t, gone, shared.Failure())
	require.Equal(t, gone.Error(), a.Stat().BackendError)
	shared.ReportFailure(lookuptest.ErrStore)
	require.Equal(t, lookuptest.ErrStore, shared.Failure(), "of a call")
}

// heldAnswers is a store that holds back the answers of calls of one operation, which it has made.
type heldAnswers struct {
	*lookuptest.KeyStore
	gate   *lookuptest.Gate
	exists bool // the first call of Exists
	resets bool // calls of Reset
}

func (s *heldAnswers) Exists(ctx context.Context, keys backend.Keys, peek bool) ([]int, error) {
	answers, err := s.KeyStore.Exists(ctx, keys, peek)
	if s.exists && s.gate.Held.Add(1) == 1 {
		<-s.gate.Open
	}
	return answers, err
}

// Reset takes effect when the gate is open.
func (s *heldAnswers) Reset(ctx context.Context) error {
	if s.resets {
		<-s.gate.Open
	}
	return s.KeyStore.Reset(context.WithoutCancel(ctx))
}

// A lookup that begins after a reset follows none that began before it, though another pool has made the reset.
func TestNoAnswerIsSharedAcrossAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 4, 32)
		store := &heldAnswers{KeyStore: lookuptest.Filled(t, keys), gate: lookuptest.NewGate(), exists: true}
		a, b := twoPools(t, store, patient)
		before := asked(t.Context(), a, 64, keys, 32)
		synctest.Wait()
		require.NoError(t, b.Reset(t.Context()))
		after, other := asked(t.Context(), a, 64, keys, 32), asked(t.Context(), b, 64, keys, 32)
		synctest.Wait()
		close(store.gate.Open)
		require.EqualValues(t, 64, <-before, "a caller gets its own answer")
		require.Zero(t, <-after)
		require.Zero(t, <-other)
	})
}

// A reset that was given up may happen later. What was found before it, and until it returns, is forgotten then.
func TestAbandonedReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 4, 32)
		store := struct {
			*heldAnswers
			lease
		}{&heldAnswers{KeyStore: lookuptest.Filled(t, keys), gate: lookuptest.NewGate(), resets: true}, lease{}}
		a, b := twoPools(t, store, patient)
		hit := func() int64 { return <-asked(t.Context(), a, 64, keys, 32) }
		require.EqualValues(t, 64, hit())
		require.EqualValues(t, 64, hit())
		require.EqualValues(t, 1, a.Stat().RememberedLookups)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Reset(ctx), context.DeadlineExceeded)
		require.EqualValues(t, 64, hit())
		require.EqualValues(t, 1, a.Stat().RememberedLookups, "it may have happened")
		require.EqualValues(t, 64, hit())
		require.EqualValues(t, 2, a.Stat().RememberedLookups)
		close(store.gate.Open)
		synctest.Wait()
		require.Zero(t, hit())
	})
}

// lease is that of a store which has stated an hour.
type lease struct{}

func (lease) Lease() backend.Lease { return backend.Lease{Duration: time.Hour, Stated: time.Hour} }
