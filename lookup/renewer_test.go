package lookup

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/requesterror"
)

// renewerTest is a Renewer over a store with leases of ten seconds. It must run in a bubble of synctest.
type renewerTest struct {
	*testing.T
	store   *leasingStore
	service *Service
	renewer *Renewer
	account *MemoryAccount
	log     bytes.Buffer
}

func newRenewerTest(t *testing.T, account *MemoryAccount) *renewerTest {
	r := &renewerTest{T: t, store: &leasingStore{lease: 10 * time.Second}, account: account}
	var err error
	r.service, err = NewService(ServiceConfig{
		Pool: blocks16.Pool, Backend: r.store, Remote: RemoteConfig{Memory: account}, Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	require.NoError(t, err)
	r.renewer = StartRenewer(r.service.Backend().Shared(), account)
	t.Cleanup(r.renewer.Stop)
	return r
}

// add has a connection ask to renew a chain of n hashes.
func (r *renewerTest) add(conn any, name string, n int) {
	hashes := bufpool.GetFor(32 * n)
	hashes.Grow(1 << 20) // as a pooled one may be
	hashes.B = append(hashes.B, lookuptest.Chain(name, n, 32)...)
	r.renewer.Add(conn, r.service, hashes, 32)
}

// isDone requires that nothing is queued, and that nothing is held for it.
func (r *renewerTest) isDone() {
	synctest.Wait()
	r.Helper()
	require.Empty(r, r.renewer.turns)
	require.Empty(r, r.renewer.conns)
	require.Zero(r, r.renewer.calls)
	require.Zero(r, r.renewer.bytes.Held())
	used, _, refused := r.account.Usage()
	require.Equal(r, r.service.remote.shared.memory.renewed.young.bytes()+r.service.remote.shared.memory.renewed.old.bytes(), used)
	require.Zero(r, refused, "no request was refused")
}

func (r *renewerTest) dropped() int64 { return r.service.Stat().RenewalsDropped }

// Four callers look up without a pause in a store that takes 2 ms: the keys of a long prompt are all asked for within half
// of a lease.
func TestRenewerUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 15_000
		r := newRenewerTest(t, NewMemoryAccount(1<<30))
		r.store.Before = func(context.Context, string, []string) error { time.Sleep(2 * time.Millisecond); return nil }
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					_, _ = r.service.Lookup(ctx, 32, coordinator.NewHashes(lookuptest.Chain(fmt.Sprint(i, n), 2, 32), 32))
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		r.add(1, "renewed", keys)
		time.Sleep(r.store.lease / 4)
		renewed := r.service.Stat().RenewedKeys
		require.Greater(t, renewed, int64(keys/2))
		require.Less(t, renewed, int64(keys*3/4), "they are spread")
		time.Sleep(r.store.lease / 4)
		require.EqualValues(t, keys, r.service.Stat().RenewedKeys)
		require.Zero(t, r.dropped())
		cancel()
		callers.Wait()
		r.isDone()
	})
}

// A connection that asks for much delays no other, and leaves room for it in the queue.
func TestRenewerTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRenewerTest(t, NewMemoryAccount(1<<30))
		r.add("first", "first", 1) // is asked for at once
		synctest.Wait()
		r.store.asked()
		for i := range 40 {
			r.add("greedy", fmt.Sprint("greedy", i), 10_000)
		}
		greedy := r.dropped()
		require.Positive(t, greedy)
		require.Greater(t, r.renewer.bytes.Held(), r.renewer.maxBytes/4)
		for i := range 4 {
			r.add(i, fmt.Sprint("modest", i), 2*renewKeys)
		}
		r.add("large", "large", 10_000)
		require.Equal(t, greedy, r.dropped())
		for range 12 { // turns of six connections
			for before := r.store.Calls.Load(); r.store.Calls.Load() == before; {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
		}
		asked := r.store.asked()
		for i := range 4 {
			last := coordinator.NewHashes(lookuptest.Chain(fmt.Sprint("modest", i), 2*renewKeys, 32), 32).At(2*renewKeys - 1)
			require.True(t, slices.ContainsFunc(asked, func(key string) bool { return strings.HasSuffix(key, fmt.Sprintf("@%x", last)) }), i)
		}
		time.Sleep(r.store.lease / 2)
		r.isDone()
		require.Equal(t, greedy, r.dropped())
		require.Equal(t, 1, strings.Count(r.log.String(), "renewals are dropped"), "said once")
	})
}

// What waits is in the account. If that is full, or the store fails, requests are dropped and counted. Those of an older
// epoch are pointless, and not counted. A panic ends one request.
func TestRenewerDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := NewMemoryAccount(64 << 20)
		r := newRenewerTest(t, account)
		r.add(1, "a", 1)
		synctest.Wait()
		r.add(1, "b", 10_000)
		used, _, _ := account.Usage()
		require.Greater(t, used, int64(32*10_000))
		require.True(t, account.Reserve(64<<20-used-32*100))
		r.add(2, "c", 1000)
		require.EqualValues(t, 1, r.dropped())
		account.Free(64<<20 - used - 32*100)
		time.Sleep(r.store.lease)
		r.isDone()
		require.Contains(t, r.log.String(), "limits.max_memory")
		require.EqualValues(t, 10_001, r.service.Stat().RenewedKeys)

		fails := maxRenewalTries - 1
		r.store.Before = func(ctx context.Context, _ string, _ []string) error {
			if fails--; fails < 0 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		r.add(1, "d", 1000)
		time.Sleep(r.store.lease)
		r.isDone()
		require.EqualValues(t, 11_001, r.service.Stat().RenewedKeys, "after some tries")
		fails = maxRenewalTries
		r.add(1, "D", 1000)
		time.Sleep(r.store.lease)
		r.isDone()
		require.EqualValues(t, 2, r.dropped())
		succeeds := r.store.Before
		r.store.Before = func(context.Context, string, []string) error {
			time.Sleep(time.Millisecond)
			return lookuptest.ErrStore
		}
		r.add(1, "E", 1000)
		r.add(1, "F", 1000)
		time.Sleep(r.store.lease)
		r.isDone()
		require.EqualValues(t, 3, r.dropped(), "the other one is of an older epoch")
		r.store.Before = succeeds

		r.add(1, "e", 1000)
		synctest.Wait()
		r.service.remote.shared.memory.epoch.begin()
		time.Sleep(r.store.lease)
		r.isDone()
		require.EqualValues(t, 3, r.dropped())
		require.EqualValues(t, 11_001+renewKeys, r.service.Stat().RenewedKeys)

		key := r.service.remote.groups
		r.service.remote.groups = nil // the search for what is due panics
		r.add(1, "f", 10)
		synctest.Wait()
		r.service.remote.groups = key
		r.add(1, "g", 10)
		time.Sleep(r.store.lease)
		r.isDone()
		require.EqualValues(t, 4, r.dropped())
		require.EqualValues(t, 11_001+renewKeys+10, r.service.Stat().RenewedKeys)
		require.Contains(t, r.log.String(), requesterror.ErrFault.Error())

		r.store.Before = func(ctx context.Context, _ string, _ []string) error { <-ctx.Done(); return ctx.Err() }
		for i := range 10 {
			r.add(i, fmt.Sprint("late", i), 1000)
		}
		r.renewer.Stop()
		r.isDone()
	})
}

// A request that finds nothing due makes no call.
func TestRenewerFindsNothingDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRenewerTest(t, nil)
		for range 3 {
			r.add(1, "a", 1000)
			time.Sleep(r.store.lease / 2)
			synctest.Wait()
			require.Empty(t, r.renewer.turns)
		}
		require.EqualValues(t, 2000, r.service.Stat().RenewedKeys, "once within a lease")
	})
}

// BenchmarkLookupsBesideRenewals reports how long lookups of four callers take over a store of 2 ms, alone and while 15,000
// keys are renewed in half a lease, again and again.
func BenchmarkLookupsBesideRenewals(b *testing.B) {
	for _, renew := range []bool{false, true} {
		b.Run(fmt.Sprintf("renew=%v", renew), func(b *testing.B) {
			store := &leasingStore{lease: 2 * time.Second}
			store.Before = func(context.Context, string, []string) error { time.Sleep(2 * time.Millisecond); return nil }
			s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
			require.NoError(b, err)
			r := StartRenewer(s.Backend().Shared(), nil)
			defer r.Stop()
			stop := time.NewTicker(store.lease / 2)
			defer stop.Stop()
			var mu sync.Mutex
			var took []time.Duration
			var callers sync.WaitGroup
			b.ResetTimer()
			for i := range 4 {
				callers.Go(func() {
					for n := range b.N {
						began := time.Now()
						_, _ = s.Lookup(b.Context(), 32, coordinator.NewHashes(lookuptest.Chain(fmt.Sprint(i, n), 2, 32), 32))
						mu.Lock()
						took = append(took, time.Since(began))
						mu.Unlock()
					}
				})
			}
			done := make(chan struct{})
			go func() { callers.Wait(); close(done) }()
			for prompt := 0; ; prompt++ {
				if renew {
					hashes := bufpool.GetFor(32 * 15_000)
					hashes.B = append(hashes.B, lookuptest.Chain(fmt.Sprint("renewed", prompt), 15_000, 32)...)
					r.Add(1, s, hashes, 32)
				}
				select {
				case <-stop.C:
					continue
				case <-done:
				}
				break
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(s.Stat().RenewedKeys), "renewed")
			b.ReportMetric(float64(s.Stat().RenewalsDropped), "dropped")
		})
	}
}
