package lookup

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
)

// TestShareDeadlines lets a follower live longer than its leader, and shorter.
func TestShareDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 8, 32)
		hashes := coordinator.NewHashes(keys, 32)
		store := lookuptest.Filled(t, keys)
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
		require.NoError(t, err)
		var calls atomic.Int64
		store.Before = func(ctx context.Context, _ string, _ []string) error {
			wait := 10 * time.Millisecond
			if calls.Add(1) == 1 {
				wait = time.Hour
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
				return nil
			}
		}
		begun := time.Now()
		ask := func(after, timeout, took time.Duration, want int64) func() {
			return func() {
				time.Sleep(after)
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				answer, err := s.remote.lookup(ctx, 128, hashes, LookupOptions{})
				hit := answer.Hit
				require.NoError(t, err)
				require.Equal(t, want, hit.Tokens)
				require.Equal(t, took, time.Since(begun))
			}
		}
		const ms = time.Millisecond
		var all sync.WaitGroup
		all.Go(ask(0, 100*ms, 100*ms, 0))       // leads
		all.Go(ask(20*ms, 30*ms, 50*ms, 0))     // follows, shorter
		all.Go(ask(50*ms, 100*ms, 110*ms, 128)) // follows, longer: asks again
		all.Go(ask(60*ms, 100*ms, 110*ms, 128)) // and so does this one, together
		all.Go(ask(70*ms, 25*ms, 95*ms, 0))     // but has no time left
		all.Wait()
		require.EqualValues(t, 2, calls.Load())
		require.EqualValues(t, 3, s.Stat().BackendTimeouts)
		require.EqualValues(t, 5, s.Stat().Lookups)
		require.Empty(t, s.remote.coalescer.inflight)
	})
}

// A call of a lookup has one deadline: the earliest of that of its options, of its context and of RemoteConfig.Timeout.
func TestLookupDeadline(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct{ option, ctx, want time.Duration }{
		"timeout":                  {want: 100 * ms},
		"option":                   {option: 70 * ms, want: 70 * ms},
		"context":                  {ctx: 50 * ms, want: 50 * ms},
		"later context":            {ctx: time.Hour, want: 100 * ms},
		"option before a context":  {option: 70 * ms, ctx: 80 * ms, want: 70 * ms},
		"context before an option": {option: 70 * ms, ctx: 60 * ms, want: 60 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := lookuptest.Chain("a", 8, 32)
				store := lookuptest.Filled(t, keys)
				s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
				require.NoError(t, err)
				begun := time.Now()
				store.Before = func(ctx context.Context, _ string, _ []string) error {
					deadline, _ := ctx.Deadline()
					require.Equal(t, c.want, deadline.Sub(begun))
					<-ctx.Done()
					return ctx.Err()
				}
				o, ctx := LookupOptions{}, t.Context()
				if c.option > 0 {
					o.Deadline = begun.Add(c.option)
				}
				if c.ctx > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.ctx)
					defer cancel()
				}
				answer, err := s.LookupAnswer(ctx, 128, coordinator.NewHashes(keys, 32), o)
				require.NoError(t, err)
				require.Zero(t, answer.Hit.Tokens)
				require.Equal(t, c.want, time.Since(begun))
				require.EqualValues(t, 1, s.Stat().BackendTimeouts)
			})
		})
	}
}

// heldService returns a service over a store that has keys, and answers once the gate is open.
func heldService(t *testing.T, keys []byte) (*Service, *lookuptest.KeyStore, *lookuptest.Gate) {
	t.Helper()
	store, gate := lookuptest.Filled(t, keys), lookuptest.NewGate()
	store.Holding(gate, "exists", "")
	s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
	require.NoError(t, err)
	return s, store, gate
}

// asked asks for the hit of hashes in a goroutine.
func asked(ctx context.Context, s *Service, numTokens int64, keys []byte, hashLen int) <-chan int64 {
	tokens := make(chan int64, 1)
	go func() {
		hit, err := s.Lookup(ctx, numTokens, coordinator.NewHashes(keys, hashLen))
		if err != nil {
			hit.Tokens = -1
		}
		tokens <- hit.Tokens
	}()
	return tokens
}

// TestShareOneCall has equal lookups come while one asks, and one after it.
func TestShareOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 8, 32)
		s, store, gate := heldService(t, keys)
		calls := store.Calls.Load()
		var all []<-chan int64
		for range 8 {
			all = append(all, asked(t.Context(), s, 128, bytes.Clone(keys), 32))
		}
		synctest.Wait()
		close(gate.Open)
		for _, tokens := range all {
			require.EqualValues(t, 128, <-tokens)
		}
		require.EqualValues(t, 1, store.Calls.Load()-calls)
		require.EqualValues(t, 8, s.Stat().Lookups)
		require.EqualValues(t, 128, <-asked(t.Context(), s, 128, keys, 32))
		require.EqualValues(t, 2, store.Calls.Load()-calls, "it is over")
	})
}

// TestShareEqualOnly makes lookups that differ in one respect each.
func TestShareEqualOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 8, 32)
		other := bytes.Clone(keys)
		other[0] ^= 1 // no chain: the last hash is the same
		s, _, gate := heldService(t, keys)
		all := []<-chan int64{
			asked(t.Context(), s, 128, keys, 32), asked(t.Context(), s, 128, other, 32), asked(t.Context(), s, 112, keys[:7*32], 32),
			asked(t.Context(), s, 256, keys, 32), asked(t.Context(), s, 128, keys, 16),
		}
		synctest.Wait()
		require.EqualValues(t, 5, gate.Held.Load(), "each asks")
		close(gate.Open)
		for i, want := range []int64{128, 0, 112, 128, 0} {
			require.Equal(t, want, <-all[i], "lookup %d", i)
		}
	})
}

// TestShareEndsAtChange makes changes while an equal lookup asks.
func TestShareEndsAtChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 8, 32)
		hashes := coordinator.NewHashes(keys, 32)
		store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
		var calls atomic.Int64
		store.Before = func(ctx context.Context, op string, _ []string) error {
			if op == "exists" && calls.Add(1) == 1 {
				return gate.Wait(ctx)
			}
			return nil
		}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
		require.NoError(t, err)
		early := asked(t.Context(), s, 128, keys, 32)
		synctest.Wait()
		for i, change := range []func() error{
			func() error { return s.Store(t.Context(), coordinator.GroupRank{}, hashes) },
			func() error {
				return s.Evict(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(keys[:32], 32))
			},
			func() error { return s.Reset(t.Context()) },
		} {
			require.NoError(t, change())
			require.Equal(t, []int64{128, 0, 0}[i], <-asked(t.Context(), s, 128, keys, 32))
		}
		require.EqualValues(t, 4, calls.Load(), "none shared the first one's call")
		close(gate.Open)
		<-early
	})
}

// TestShareCancelled cancels the lookup that asks: the call goes on for those that share it, and ends with
// the last of them.
func TestShareCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 8, 32)
		store, gate := lookuptest.Filled(t, keys), lookuptest.NewGate()
		var ended atomic.Int64
		store.Before = func(ctx context.Context, op string, _ []string) (err error) {
			if op == "exists" {
				if err = gate.Wait(ctx); err != nil {
					ended.Add(1)
				}
			}
			return err
		}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
		require.NoError(t, err)
		ask := func() (cancel func(), tokens <-chan int64) {
			ctx, end := context.WithCancel(t.Context())
			tokens = asked(ctx, s, 128, keys, 32)
			synctest.Wait()
			return func() { end(); synctest.Wait() }, tokens
		}
		cancelFirst, _ := ask()
		cancelSecond, _ := ask()
		cancelFirst()
		require.Zero(t, ended.Load(), "it goes on for the other")
		cancelSecond()
		require.EqualValues(t, 1, ended.Load(), "it ends with the last")

		cancelFirst, _ = ask()
		cancelSecond, _ = ask()
		cancelThird, tokens := ask()
		defer cancelThird()
		cancelFirst()
		cancelSecond()
		close(gate.Open)
		require.EqualValues(t, 128, <-tokens)
		require.EqualValues(t, 2, gate.Held.Load())
		require.EqualValues(t, 1, ended.Load())
	})
}

// TestRemoteOneDeadline spends a lookup's time in several rounds.
func TestRemoteOneDeadline(t *testing.T) {
	for _, n := range []int{100, 1000} { // one round, two
		synctest.Test(t, func(t *testing.T) {
			keys := lookuptest.Chain("a", n, 32)
			store := lookuptest.Filled(t, keys)
			var calls atomic.Int64
			store.Before = func(ctx context.Context, _ string, _ []string) error {
				calls.Add(1)
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(60 * time.Millisecond):
					return nil
				}
			}
			s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
			require.NoError(t, err)
			begun := time.Now()
			hit, err := s.Lookup(t.Context(), int64(16*n), coordinator.NewHashes(keys, 32))
			require.NoError(t, err)
			if n == 100 {
				require.EqualValues(t, 16*n, hit.Tokens)
				require.Equal(t, 60*time.Millisecond, time.Since(begun))
				return
			}
			require.Zero(t, hit.Tokens, "the prefix of the first round is no answer")
			require.Equal(t, 100*time.Millisecond, time.Since(begun))
			require.EqualValues(t, 2, calls.Load())
			require.EqualValues(t, 1, s.Stat().BackendTimeouts)
		})
	}
}

// TestShareCrowd asks a few questions from many goroutines with all kinds of
// lookuptest.Patience; answers are right, or 0 when time was up.
func TestShareCrowd(t *testing.T) {
	chains := [][]byte{lookuptest.Chain("a", 300, 32), lookuptest.Chain("b", 200, 32), lookuptest.Chain("c", 20, 32)}
	synctest.Test(t, func(t *testing.T) {
		store := lookuptest.Filled(t, chains...)
		store.Before = func(ctx context.Context, _ string, _ []string) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond):
				return nil
			}
		}
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: RemoteConfig{BreakerFailures: 1 << 30}})
		require.NoError(t, err)
		var all sync.WaitGroup
		var right atomic.Int64
		for range 32 {
			all.Go(func() {
				for range 60 {
					keys := chains[rand.IntN(3)]
					n := len(keys) / 32
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(500+rand.IntN(8000))*time.Microsecond)
					if rand.IntN(8) == 0 {
						go cancel()
					}
					if rand.IntN(40) == 0 {
						_ = s.Evict(t.Context(), coordinator.GroupRank{}, coordinator.NewHashes(lookuptest.Chain("none", 1, 32), 32))
					}
					own := bytes.Clone(keys)
					answer, err := s.remote.lookup(ctx, int64(16*n), coordinator.NewHashes(own, 32), LookupOptions{})
					hit := answer.Hit
					clear(own) // whoever still reads it sees something else
					if err != nil || hit.Tokens != 0 && hit.Tokens != int64(16*n) {
						t.Errorf("%d of %d blocks, %v", hit.Tokens/16, n, err)
					}
					if hit.Tokens > 0 {
						right.Add(1)
					} else if deadline, _ := ctx.Deadline(); ctx.Err() == nil && time.Now().Before(deadline) {
						t.Error("0, and there was time left")
					}
					cancel()
				}
			})
		}
		all.Wait()
		require.Positive(t, right.Load())
		require.Empty(t, s.remote.coalescer.inflight)
	})
}

// TestSharePanic has the lookup that asks panic. The one that shares it then asks itself.
func TestSharePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := lookuptest.Chain("a", 8, 32)
		s, _, gate := heldService(t, keys)
		panics := make(chan any, 2)
		for range 2 {
			go func() {
				defer func() { panics <- recover() }()
				_, _ = s.Lookup(t.Context(), 128, coordinator.NewHashes(keys, 32))
			}()
			synctest.Wait()
		}
		s.remote.shared.memory = nil // adding what is found panics
		begun := time.Now()
		close(gate.Open)
		require.NotNil(t, <-panics)
		require.NotNil(t, <-panics, "it asked itself")
		require.Zero(t, time.Since(begun), "it waited for nothing")
		require.Empty(t, s.remote.coalescer.inflight)
	})
}
