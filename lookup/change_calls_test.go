package lookup

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// stuckStore is a store that holds everything, and whose calls last until open is closed,
// whatever their context says.
func stuckStore(open <-chan struct{}) *lookuptest.KeyStore {
	store := &lookuptest.KeyStore{}
	store.Before = func(context.Context, string, []string) error {
		<-open
		return nil
	}
	store.Answer = func(answers []int) []int {
		for i := range answers {
			answers[i] = 1
		}
		return answers
	}
	return store
}

// ignoresContext keeps keyStore from looking at the end of a context.
type ignoresContext struct {
	backend.Plain
	keyStore *lookuptest.KeyStore
}

func (i ignoresContext) Name() string { return "stuck" }
func (i ignoresContext) Close() error { return nil }
func (i ignoresContext) Exists(_ context.Context, keys backend.Keys, _ bool) ([]int, error) {
	return i.keyStore.Exists(context.Background(), keys, false)
}

func (i ignoresContext) Store(_ context.Context, keys []string) error {
	return i.keyStore.Store(context.Background(), keys)
}

func (i ignoresContext) Evict(_ context.Context, keys []string) error {
	return i.keyStore.Evict(context.Background(), keys)
}
func (i ignoresContext) Reset(context.Context) error { return i.keyStore.Reset(context.Background()) }

// A change that does not heed its context is late when its time is up, and counted. Until it has returned no other one is made.
func TestRemoteLateChangeIsCutOff(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	hashes := coordinator.NewHashes(keys, 32)
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		s, err := NewService(ServiceConfig{
			Pool: blocks16.Pool, Backend: ignoresContext{keyStore: stuckStore(open)},
			Remote: RemoteConfig{Timeout: 100 * time.Millisecond, WriteTimeout: 10 * time.Second},
		})
		require.NoError(t, err)
		begun := time.Now()
		require.ErrorIs(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)), context.DeadlineExceeded)
		assert.Equal(t, 10*time.Second+returnGrace, time.Since(begun))
		for _, change := range []error{s.Reset(t.Context()), s.Evict(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32))} { // which the store, once it returns, could undo
			require.ErrorIs(t, change, errAbandoned)
		}
		assert.EqualValues(t, 3, s.Stat().BackendTimeouts)
		assert.EqualValues(t, 1, s.remote.shared.changes.abandoned.Load())

		close(open)
		synctest.Wait()
		assert.Zero(t, s.remote.shared.changes.abandoned.Load(), "it has returned")
		require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
		hit, err := s.Lookup(t.Context(), 128, hashes)
		require.NoError(t, err)
		assert.EqualValues(t, 128, hit.Tokens)
	})
}

// Changes wait for the abandoned one before them, so that they are never undone by it. All go on when it has returned.
func TestRemoteChangesWaitForAnAbandonedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		store := stuckStore(open)
		store.Answer = nil // it holds what is stored
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: ignoresContext{keyStore: store}, Remote: RemoteConfig{WriteTimeout: time.Second}})
		require.NoError(t, err)
		keys := lookuptest.Chain("a", 8, 32)
		require.ErrorIs(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)), context.DeadlineExceeded)
		begun := time.Now()
		time.AfterFunc(500*time.Millisecond, func() { close(open) })
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() { assert.NoError(t, s.Reset(t.Context())) })
		}
		waiting.Wait()
		assert.Equal(t, 500*time.Millisecond, time.Since(begun))
		hit, err := s.Lookup(t.Context(), 128, coordinator.NewHashes(keys, 32))
		require.NoError(t, err)
		assert.Zero(t, hit.Tokens)
	})
}

// Lookups that are cancelled count as no failure of the backend.
func TestRemoteCancelledCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lookuptest.KeyStore{Before: func(ctx context.Context, _ string, _ []string) error {
			<-ctx.Done()
			time.Sleep(returnGrace - time.Nanosecond)
			return ctx.Err()
		}}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
		require.NoError(t, err)
		var lookups sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 200 {
			lookups.Go(func() {
				_, _ = s.remote.lookup(ctx, 16, coordinator.NewHashes(lookuptest.Chain(string(rune('a'+i)), 1, 32), 32), LookupOptions{})
			})
		}
		synctest.Wait()
		cancel()
		lookups.Wait()
		assert.EqualValues(t, 200, store.Calls.Load())
		stat := s.Stat()
		assert.Zero(t, stat.BackendTimeouts+stat.BackendRejected+stat.BackendErrors)
		assert.Equal(t, "closed", stat.BackendState)
	})
}

// A request that waits for memory for very many keys delays no small one, not even where
// such requests never end.
func TestRemoteSmallRequestsPassLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		store := stuckStore(open)
		store.Before = func(ctx context.Context, _ string, keys []string) error {
			if len(keys) < 100 {
				return nil
			}
			select { // as slow as its time allows
			case <-open:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s, err := NewService(ServiceConfig{
			Pool: blocks16.Pool, Backend: store,
			Remote: RemoteConfig{Timeout: time.Second, MaxKeyBytes: 1 << 20, BreakerFailures: 1 << 20},
		})
		require.NoError(t, err)
		var large sync.WaitGroup
		for i := range 20 { // each takes more than half of what large ones have
			large.Go(func() {
				hit, err := s.Lookup(t.Context(), 16*2000, coordinator.NewHashes(lookuptest.Chain(string(rune('A'+i)), 2000, 32), 32))
				require.NoError(t, err)
				require.Zero(t, hit.Tokens)
			})
		}
		synctest.Wait()
		assert.EqualValues(t, 20+1, store.Calls.Load(), "each has had its first round; one has its second, the others wait")
		for i := range 100 {
			begun := time.Now()
			hit, err := s.Lookup(t.Context(), 16*20, coordinator.NewHashes(lookuptest.Chain(string(rune('a'+i)), 20, 32), 32))
			require.NoError(t, err)
			require.EqualValues(t, 16*20, hit.Tokens)
			require.Zero(t, time.Since(begun))
		}
		large.Wait()
	})
}
