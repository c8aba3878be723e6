package lookup

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
)

func TestRemoteService(t *testing.T) {
	store := &lookuptest.KeyStore{}
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
	require.NoError(t, err)
	keys := lookuptest.Chain("a", 100, 32)
	hashes := coordinator.NewHashes(keys, 32)
	require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys[:70*32], 32)))
	hit, err := s.Lookup(t.Context(), 1600, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 1120, hit.Tokens)
	require.NoError(t, s.Evict(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys[10*32:11*32], 32)))
	hit, err = s.Lookup(t.Context(), 1600, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 160, hit.Tokens)
	e, err := s.Explain(t.Context(), 1600, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 160, e.HitTokens)
	require.EqualValues(t, 10, *e.Groups[0].FirstMissingBlock)
	_, err = s.Lookup(t.Context(), 17, hashes)
	require.ErrorIs(t, err, coordinator.ErrPrecondition)
	_, err = s.Lookup(t.Context(), 1<<63-1, hashes)
	require.ErrorIs(t, err, coordinator.ErrPrecondition)
	hit, err = s.Lookup(t.Context(), 1<<63-16, hashes)
	require.NoError(t, err)
	require.EqualValues(t, 160, hit.Tokens)
	_, err = s.Lookup(t.Context(), 16, coordinator.NewHashes(keys, 65))
	require.ErrorIs(t, err, ErrHashLen)
	require.ErrorIs(t, s.Store(t.Context(), coordinator.GroupRank{Group: 1}, coordinator.NewHashes(keys, 32)), ErrGroupRank)
	require.ErrorIs(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys[:33], 32)), ErrCutKey)
	require.ErrorIs(t, s.Evict(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 65)), ErrHashLen)
	st := s.Stat()
	require.Equal(t, "keys", st.Backend)
	require.EqualValues(t, 70, st.Stored)
	require.EqualValues(t, 1, st.Evicted)
	require.EqualValues(t, 3, st.Lookups)
	require.Equal(t, "closed", st.BackendState)
	require.NoError(t, s.Reset(t.Context()))
	hit, err = s.Lookup(t.Context(), 1600, hashes)
	require.NoError(t, err)
	require.Zero(t, hit.Tokens)

	store.Before = func(context.Context, string, []string) error { return lookuptest.ErrStore }
	hit, err = s.Lookup(t.Context(), 1600, hashes)
	require.NoError(t, err)
	require.Zero(t, hit.Tokens, "fails open")
	require.ErrorIs(t, s.Reset(t.Context()), lookuptest.ErrStore)
	_, err = s.Explain(t.Context(), 1600, hashes)
	require.ErrorIs(t, err, lookuptest.ErrStore)
	require.EqualValues(t, 3, s.Stat().BackendErrors)
}

// TestRemoteQueuedPastDeadline has a lookup wait for a worker for all of its time.
func TestRemoteQueuedPastDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: &lookuptest.KeyStore{}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		time.Sleep(time.Second)
		answer, err := s.remote.lookup(ctx, 16, coordinator.NewHashes(lookuptest.Chain("a", 1, 32), 32), LookupOptions{})
		require.NoError(t, err)
		require.Zero(t, answer.Hit)
		require.True(t, answer.Ending.Failed)
		require.EqualValues(t, 1, s.Stat().BackendTimeouts)
		require.Equal(t, "closed", s.Stat().BackendState)
		require.Zero(t, s.remote.shared.health.breaker.Counts().Requests, "the backend is not to blame")
	})
}

// TestRemoteExplainTakesItsTurn has an explain wait for a processor for all of its
// time: it builds no keys then.
func TestRemoteExplainTakesItsTurn(t *testing.T) {
	keys := lookuptest.Chain("a", 8192, 32)
	hashes := coordinator.NewHashes(keys, 32)
	synctest.Test(t, func(t *testing.T) {
		store := &lookuptest.KeyStore{}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
		require.NoError(t, err)
		takeLarge(s)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = s.Explain(t.Context(), 8192*16, hashes)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, store.Calls.Load())
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<10))
		require.EqualValues(t, 1, s.Stat().BackendTimeouts)
		held := s.remote.shared.cpu.Held()
		s.remote.shared.cpu.Free(1, false)
		_, err = s.Explain(t.Context(), 8192*16, hashes)
		require.NoError(t, err)
		require.Equal(t, held-1, s.remote.shared.cpu.Held(), "and gives it back")
	})
}

// TestRemoteHangsUnderLoad has a backend hang while the queue is so long that every
// lookup comes out of it with little time left.
func TestRemoteHangsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 1, 32)
		store := lookuptest.Filled(t, keys)
		hangs := false
		store.Before = func(ctx context.Context, _ string, _ []string) error {
			if !hangs {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
		require.NoError(t, err)
		hashes := coordinator.NewHashes(keys, 32)
		_, err = s.Lookup(t.Context(), 16, hashes)
		require.NoError(t, err)
		hangs = true
		for begun := time.Now(); time.Since(begun) < 2*time.Second && s.Stat().BackendState == "closed"; {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			_, err := s.remote.lookup(ctx, 16, hashes, LookupOptions{})
			cancel()
			require.NoError(t, err)
		}
		require.Equal(t, "open", s.Stat().BackendState)
	})
}

// TestRemoteLittleTimeLeft has lookups come out of the queue too late for a backend
// that is well and takes ten milliseconds a call.
func TestRemoteLittleTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 1, 32)
		store := lookuptest.Filled(t, keys)
		store.Before = func(ctx context.Context, _ string, _ []string) error {
			select {
			case <-time.After(10 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
		require.NoError(t, err)
		hashes := coordinator.NewHashes(keys, 32)
		for range 20 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			answer, err := s.remote.lookup(ctx, 16, hashes, LookupOptions{})
			cancel()
			require.NoError(t, err)
			require.Zero(t, answer.Hit)
			require.True(t, answer.Ending.Failed)
		}
		require.Equal(t, "closed", s.Stat().BackendState, "the backend is not to blame")
		require.EqualValues(t, 20, s.Stat().BackendTimeouts)
		hit, err := s.Lookup(t.Context(), 16, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 16, hit.Tokens)
	})
}

// TestRemoteBreaker lets a backend fail and get well, in simulated time.
func TestRemoteBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 8, 32)
		store := lookuptest.Filled(t, keys)
		var log bytes.Buffer
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		hashes := coordinator.NewHashes(keys, 32)
		lookups := func(n int, want int64) (calls int64) {
			t.Helper()
			before := store.Calls.Load()
			for range n {
				hit, err := s.Lookup(t.Context(), 128, hashes)
				require.NoError(t, err)
				require.Equal(t, want, hit.Tokens)
			}
			return store.Calls.Load() - before
		}
		dead, well := func(ctx context.Context, _ string, _ []string) error { <-ctx.Done(); return ctx.Err() }, store.Before

		require.EqualValues(t, 10, lookups(10, 128))
		store.Before = dead
		begun := time.Now()
		require.EqualValues(t, 5, lookups(1000, 0), "five failures in a row open it")
		require.Equal(t, 500*time.Millisecond, time.Since(begun), "the other 995 waited for nothing")
		require.Equal(t, "open", s.Stat().BackendState)
		require.EqualValues(t, 995, s.Stat().BackendRejected)
		require.ErrorIs(t, s.Reset(t.Context()), backend.ErrUnavailable)

		for range 3 { // it stays open while single tries fail
			time.Sleep(1100 * time.Millisecond)
			require.EqualValues(t, 1, lookups(10, 0))
		}
		require.EqualValues(t, 2, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "a call of the backend failed")
		require.Contains(t, log.String(), "backend is failing")
		require.Contains(t, log.String(), "deadline exceeded")

		store.Before = well
		time.Sleep(1100 * time.Millisecond)
		require.EqualValues(t, 10, lookups(10, 128))
		require.Equal(t, "closed", s.Stat().BackendState)
		require.EqualValues(t, 3, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "backend has recovered")

		store.Before = dead
		lookups(10, 0)
		store.Before = well
		time.Sleep(1100 * time.Millisecond)
		lookups(10, 128)
		require.Equal(t, 2, strings.Count(log.String(), "backend is failing"), log.String())
		require.Equal(t, 2, strings.Count(log.String(), "backend has recovered"), log.String())
	})
}

// TestRemoteFirstFailure has single calls fail. The first is logged at once, and then one every ten
// seconds. The counters tell whether the latest call failed.
func TestRemoteFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &lookuptest.KeyStore{}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		hashes := coordinator.NewHashes(lookuptest.Chain("a", 1, 32), 32)
		run := func(failing error) {
			store.Before = func(context.Context, string, []string) error { return failing }
			_, err := s.Lookup(t.Context(), 16, hashes)
			require.NoError(t, err)
		}
		run(nil)
		require.Empty(t, s.Stat().BackendError)
		run(lookuptest.ErrStore)
		require.Equal(t, lookuptest.ErrStore.Error(), s.Stat().BackendError)
		require.Equal(t, "closed", s.Stat().BackendState)
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "a call of the backend failed")
		require.Contains(t, log.String(), lookuptest.ErrStore.Error())
		run(nil)
		require.Empty(t, s.Stat().BackendError)
		for range 100 { // for 100 s
			run(lookuptest.ErrStore)
			run(backend.ErrReadOnly)
			require.Equal(t, lookuptest.ErrStore.Error(), s.Stat().BackendError, "a refusal does not say that it is well")
			run(nil)
			require.Empty(t, s.Stat().BackendError)
			time.Sleep(time.Second)
		}
		require.Equal(t, 10, strings.Count(log.String(), "a call of the backend failed"), log.String())
		require.Contains(t, log.String(), "suppressed=9")
		require.NotContains(t, log.String(), "backend is failing")
	})
}

// TestRemoteClientsLeave has a store that hangs, and clients that leave before the timeout. As the store
// answers nobody, that is its failure.
func TestRemoteClientsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := false
		store := &lookuptest.KeyStore{Before: func(ctx context.Context, _ string, _ []string) error {
			if hangs {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
		require.NoError(t, err)
		look := func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(50*time.Millisecond, cancel)
			_, _ = s.Lookup(ctx, 16, coordinator.NewHashes(lookuptest.Chain("a", 1, 32), 32))
			synctest.Wait()
		}
		look()
		hangs = true
		look()
		require.Empty(t, s.Stat().BackendError, "it has just answered")
		for range 30 {
			look()
		}
		require.Contains(t, s.Stat().BackendError, "no answer within 50ms, and the client has left")
		require.NotEqual(t, "closed", s.Stat().BackendState)
		hangs = false
		time.Sleep(2 * time.Second)
		look()
		require.Empty(t, s.Stat().BackendError)
		require.Equal(t, "closed", s.Stat().BackendState)
	})
}

// TestRemotePanic has the client of a store panic. That is a failed call, and not the end of the program. The store
// is not to blame.
func TestRemotePanic(t *testing.T) {
	keys := lookuptest.Chain("a", 1, 32)
	store := lookuptest.Filled(t, keys)
	var log bytes.Buffer
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	look := func() int64 {
		hit, err := s.Lookup(t.Context(), 16, coordinator.NewHashes(keys, 32))
		require.NoError(t, err)
		return hit.Tokens
	}
	well := store.Before
	store.Before = func(context.Context, string, []string) error { panic("odd answer") }
	for range 9 {
		require.Zero(t, look())
	}
	require.EqualValues(t, 9, s.Stat().BackendErrors)
	require.Equal(t, "closed", s.Stat().BackendState)
	require.Empty(t, s.Stat().BackendError)
	require.Contains(t, log.String(), "a fault of hitline, please report it: odd answer, at ")
	require.Error(t, s.Reset(t.Context()))
	store.Before = well
	require.EqualValues(t, 16, look())
}

// TestRemoteStuckLog has nobody read the log when the breaker opens: one lookup waits for
// it, and no other.
func TestRemoteStuckLog(t *testing.T) {
	for name, message := range map[string]string{"failing": "backend is failing: lookups answer 0 until it has recovered", "well": "backend has recovered"} {
		t.Run(name, func(t *testing.T) {
			log := lookuptest.NewStuckLog(message)
			failing := lookuptest.ErrStore
			store := &lookuptest.KeyStore{Before: func(context.Context, string, []string) error { return failing }}
			cfg := RemoteConfig{Timeout: lookuptest.Patience, BreakerFailures: 1, BreakerPause: time.Millisecond}
			s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: cfg, Logger: slog.New(log)})
			require.NoError(t, err)
			done := make(chan error, 2)
			lookup := func(name string) {
				_, err := s.Lookup(t.Context(), 16, coordinator.NewHashes(lookuptest.Chain(name, 1, 32), 32))
				done <- err
			}
			if name == "well" {
				lookup("a")
				require.NoError(t, <-done)
				failing = nil
				time.Sleep(2 * cfg.BreakerPause)
			}
			go lookup("b")
			<-log.Held
			go lookup("c")
			select {
			case err := <-done:
				require.NoError(t, err)
				require.NotEmpty(t, s.Stat().BackendState)
				close(log.Free)
				require.NoError(t, <-done)
			case <-time.After(lookuptest.Patience):
				close(log.Free)
				require.Fail(t, "the log keeps a lookup waiting")
			}
		})
	}
}

// TestRemoteResetKeepsNoLookupsOut has a reset be the first call after the breaker's pause.
func TestRemoteResetKeepsNoLookupsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 1, 32)
		store, failing := lookuptest.Filled(t, keys), lookuptest.ErrStore
		store.Before = func(ctx context.Context, op string, _ []string) error {
			if op == "reset" && failing == nil {
				<-ctx.Done()
				return ctx.Err()
			}
			return failing
		}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: RemoteConfig{BreakerFailures: 1}})
		require.NoError(t, err)
		hashes := coordinator.NewHashes(keys, 32)
		again := func(want string) {
			t.Helper()
			time.Sleep(1100 * time.Millisecond)
			require.Error(t, s.Reset(t.Context()))
			require.Equal(t, want, s.Stat().BackendState)
		}
		require.Error(t, s.Reset(t.Context()))
		require.Equal(t, "open", s.Stat().BackendState)
		again("open")
		failing = backend.ErrReadOnly
		again("half-open") // which the store may not have seen
		failing = lookuptest.ErrStore
		again("open")
		failing = nil
		time.Sleep(1100 * time.Millisecond)
		hit, err := s.Lookup(t.Context(), 16, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 16, hit.Tokens)
		require.Equal(t, "closed", s.Stat().BackendState)
		failing = lookuptest.ErrStore
		require.Error(t, s.Reset(t.Context()))
		failing = nil
		time.Sleep(1100 * time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- s.Reset(t.Context()) }()
		synctest.Wait()
		hit, err = s.Lookup(t.Context(), 16, hashes)
		require.NoError(t, err)
		require.EqualValues(t, 16, hit.Tokens, "the backend is well")
		require.ErrorIs(t, <-done, context.DeadlineExceeded)
	})
}

// passedContext is a context whose deadline has passed and that has not noticed it.
type passedContext struct{ context.Context }

func (passedContext) Deadline() (time.Time, bool) { return time.Now(), true }

func (passedContext) Err() error { return nil }

// TestRemoteDeadlineOfASocket has the deadline of a call that comes out of the queue late
// be seen by the backend before the context's own timer runs.
func TestRemoteDeadlineOfASocket(t *testing.T) {
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: &lookuptest.KeyStore{}, Remote: RemoteConfig{BreakerFailures: 1}})
	require.NoError(t, err)
	ctx := passedContext{context.Background()}
	call, err := s.remote.shared.begin(ctx, callExists, &s.remote.requests)
	require.NoError(t, err)
	require.ErrorIs(t, call.end(context.DeadlineExceeded), context.DeadlineExceeded)
	require.Equal(t, "closed", s.Stat().BackendState, "the backend is not to blame")
	require.EqualValues(t, 1, s.Stat().BackendTimeouts)
}

// TestRemoteExplain compares explanations of random pools' contents with those of
// the memory index.
func TestRemoteExplain(t *testing.T) {
	pool := coordinator.Pool{
		HashBlockSize: 16, TPSize: 2,
		Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 64},
			{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32},
		},
	}
	raw := lookuptest.Chain("a", 32, 32)
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		memory, err := NewService(ServiceConfig{Pool: pool})
		require.NoError(t, err)
		remote, err := NewService(ServiceConfig{Pool: pool, Backend: &lookuptest.KeyStore{}, Remote: patient})
		require.NoError(t, err)
		for i := range 32 {
			for place := range 4 {
				if rng.IntN(10) == 0 {
					continue
				}
				at := coordinator.GroupRank{Group: uint16(place / 2), TPRank: uint16(place % 2)}
				require.NoError(t, memory.Store(t.Context(), at, coordinator.NewHashes(raw[32*i:32*i+32], 32)))
				require.NoError(t, remote.Store(t.Context(), at, coordinator.NewHashes(raw[32*i:32*i+32], 32)))
			}
		}
		tokens, hashes := uint64(64*rng.IntN(9)), coordinator.NewHashes(raw[:32*(1+rng.IntN(32))], 32)
		want, wantErr := memory.Explain(t.Context(), int64(tokens), hashes)
		got, gotErr := remote.Explain(t.Context(), int64(tokens), hashes)
		require.Equal(t, classOf(wantErr), classOf(gotErr))
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// TestRemoteManyKeys bounds the keys that requests make: they take much more memory
// than the hashes that they are made of.
func TestRemoteManyKeys(t *testing.T) {
	pool := coordinator.Pool{ModelName: "m", TPSize: 2}
	keys := lookuptest.Chain("a", 2000, 2) // 2,000 hashes on two ranks, 112 bytes a key: 448,000
	all, half := coordinator.NewHashes(keys, 2), coordinator.NewHashes(keys[:2000], 2)
	synctest.Test(t, func(t *testing.T) {
		store, open := &lookuptest.KeyStore{}, make(chan struct{})
		store.Answer = func(answers []int) []int {
			for i := range answers {
				answers[i] = 1
			}
			return answers
		}
		store.Before = func(ctx context.Context, _ string, _ []string) error {
			select {
			case <-open:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s, err := NewService(ServiceConfig{Pool: pool, Backend: store, Remote: RemoteConfig{MaxKeyBytes: 640_000}})
		require.NoError(t, err)
		lookup := func(hashes coordinator.Hashes, want int64) {
			hit, err := s.Lookup(t.Context(), int64(16*hashes.Len()), hashes)
			require.NoError(t, err)
			require.Equal(t, want, hit.Tokens)
		}
		whole := func() {
			require.Zero(t, s.remote.shared.keys.Held(), "it is given back")
			require.Zero(t, s.remote.shared.cpu.Held())
		}

		_, err = s.Explain(t.Context(), 32000, all)
		require.ErrorIs(t, err, ErrTooManyKeys)
		require.EqualValues(t, 1, s.Stat().BackendRejected)
		require.Zero(t, store.Calls.Load(), "no key was built")
		whole()

		var asks sync.WaitGroup // two have room at a time, the others when these are done
		for range 5 {
			asks.Go(func() {
				e, err := s.Explain(t.Context(), 16000, half)
				require.NoError(t, err)
				require.EqualValues(t, 16000, e.HitTokens)
			})
		}
		synctest.Wait()
		require.EqualValues(t, 2, store.Calls.Load())
		require.Zero(t, s.remote.shared.cpu.Held(), "who waits for room does not keep others from a processor")
		close(open)
		asks.Wait()
		lookup(half, 16000)
		whole()

		open = make(chan struct{}) // now all wait until it is too late
		for range 5 {
			asks.Go(func() {
				_, err := s.Explain(t.Context(), 16000, half)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		asks.Wait()
		require.EqualValues(t, 5, s.Stat().BackendTimeouts)
		whole()
	})
}

// TestRemoteChangesInPieces stores and evicts more keys than one call of a backend
// takes.
func TestRemoteChangesInPieces(t *testing.T) {
	const n = 2*writeAtOnce + 5
	keys := lookuptest.Chain("a", n, 8)
	most, fail := 0, int64(0)
	store := &lookuptest.KeyStore{}
	store.Before = func(_ context.Context, op string, keys []string) error {
		if most = max(most, len(keys)); store.Calls.Load() == fail {
			return lookuptest.ErrStore
		}
		return nil
	}
	s, err := NewService(ServiceConfig{Pool: coordinator.Pool{ModelName: "m"}, Backend: store, Remote: patient})
	require.NoError(t, err)
	require.NoError(t, s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 8)))
	require.Equal(t, writeAtOnce, most)
	require.EqualValues(t, 3, store.Calls.Load())
	require.Len(t, store.Keys, n)
	require.EqualValues(t, n, s.Stat().Stored)
	hit, err := s.Lookup(t.Context(), 1600, coordinator.NewHashes(keys[len(keys)-800:], 8))
	require.NoError(t, err)
	require.EqualValues(t, 1600, hit.Tokens)
	calls := store.Calls.Load()
	require.NoError(t, s.Evict(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 8)))
	require.Empty(t, store.Keys)
	require.EqualValues(t, calls+3, store.Calls.Load())

	fail = calls + 5
	err = s.Store(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 8))
	require.ErrorIs(t, err, lookuptest.ErrStore)
	require.ErrorIs(t, err, api.ErrPartlyDone)
	require.EqualValues(t, fail, store.Calls.Load(), "none behind the one that failed")
	require.Len(t, store.Keys, writeAtOnce)

	fail++
	err = s.Evict(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 8))
	require.ErrorIs(t, err, lookuptest.ErrStore)
	require.NotErrorIs(t, err, api.ErrPartlyDone)

	fail = 0
	store.Before = func(context.Context, string, []string) error { return fmt.Errorf("a node: %w", backend.ErrPartlyDone) }
	require.ErrorIs(t, s.Reset(t.Context()), api.ErrPartlyDone, "the backend knows that it has removed some")
}

// A lookup that expects more than a request may ask for is answered as one that expects nothing.
func TestExpectedBeyondMemory(t *testing.T) {
	cfg := patient
	cfg.MaxKeyBytes = 1 << 20
	keys := lookuptest.Chain("a", 10_000, 32)
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: lookuptest.Filled(t, keys[:20*32]), Remote: cfg})
	require.NoError(t, err)
	for _, expected := range []int{0, 1000, 10_000} {
		answer, err := s.LookupAnswer(t.Context(), 160_000, coordinator.NewHashes(keys, 32), LookupOptions{Expected: expected})
		require.NoError(t, err)
		require.EqualValues(t, 320, answer.Hit.Tokens)
	}
}
