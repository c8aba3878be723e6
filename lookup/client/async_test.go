package client

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// heldServer answers when the test says so.
func heldServer() (*fakeServer, chan *fakeRequest) {
	held := make(chan *fakeRequest, 100)
	return &fakeServer{pipes: true, answer: func(r *fakeRequest) { held <- r }}, held
}

// pollReady polls until the answer is there.
func pollReady(t testing.TB, a *AsyncClient, id string) (uint32, error) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < lookuptest.Patience; time.Sleep(time.Millisecond) {
		if hit, ready, err := a.Poll(id, 1, coordinator.NewHashes(nil, 0)); ready {
			return uint32(hit.Tokens), err
		}
	}
	t.Fatal("never ready: ", id)
	return 0, nil
}

func notReady(t testing.TB, a *AsyncClient, id string, numTokens uint32) {
	t.Helper()
	hit, ready, err := a.Poll(id, int64(numTokens), coordinator.NewHashes(nil, 0))
	require.NoError(t, err)
	require.False(t, ready)
	require.Zero(t, hit.Tokens)
}

// empty reports whether the client has no pending id, answer, copy or queued call.
func (a *AsyncClient) empty() bool {
	a.transport.mu.Lock()
	defer a.transport.mu.Unlock()
	return len(a.pending) == 0 && a.answered.Len() == 0 && a.copiedBytes == 0 && len(a.transport.queue) == 0
}

// An answer that comes after its id was discarded, and used again, is dropped.
func TestAsyncDiscardWhileUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, held := heldServer()
		a := fakeAsync(t, f)
		notReady(t, a, "r", 48)
		stale := <-held
		a.Discard("r")
		require.True(t, a.empty())
		notReady(t, a, "r", 64)
		fresh := <-held
		stale.reply()
		synctest.Wait()
		notReady(t, a, "r", 64)
		fresh.reply()
		synctest.Wait()
		hit, ready, _ := a.Poll("r", 64, coordinator.NewHashes(nil, 0))
		require.True(t, ready)
		require.EqualValues(t, 64, hit.Tokens)
		require.Zero(t, a.transport.inFlight.len())
		require.True(t, a.empty())
	})
}

// The first Poll copies the hashes.
func TestAsyncCopiesHashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, held := heldServer()
		a := fakeAsync(t, f)
		hashes := []byte("aabbcc")
		_, ready, err := a.Poll("r", 48, coordinator.NewHashes(hashes, 2))
		require.NoError(t, err)
		require.False(t, ready)
		clear(hashes)
		r := <-held
		require.Equal(t, "aabbcc", string(r.frames[3]))
		r.reply()
		synctest.Wait()
		a.transport.mu.Lock()
		defer a.transport.mu.Unlock()
		require.Zero(t, a.copiedBytes, "the copy is released when it is answered")
	})
}

// A lookup that fails is ready with 0 and the error.
func TestAsyncFailureReadsAsZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, held := heldServer()
		a := fakeAsync(t, f, WithTimeout(time.Second))
		hit, ready, err := a.Poll("r", 48, coordinator.NewHashes(nil, 1<<16))
		require.True(t, ready)
		require.Zero(t, hit.Tokens)
		require.ErrorIs(t, err, ErrRequest)

		notReady(t, a, "refused", 48)
		r := <-held
		r.conn.send(netproto.AppendRefusal(nil, r.envelope, netproto.StatusFailed, "no", nil))
		synctest.Wait()
		hit, ready, err = a.Poll("refused", 0, coordinator.NewHashes(nil, 0))
		require.True(t, ready)
		require.Zero(t, hit.Tokens)
		require.ErrorIs(t, err, ErrRefused)

		notReady(t, a, "lost", 48)
		(<-held).conn.hangUp()
		synctest.Wait()
		hit, ready, err = a.Poll("lost", 0, coordinator.NewHashes(nil, 0))
		require.True(t, ready)
		require.Zero(t, hit.Tokens)
		require.ErrorIs(t, err, ErrConnect)

		notReady(t, a, "late", 48)
		time.Sleep(time.Second - 1)
		notReady(t, a, "late", 48)
		time.Sleep(time.Nanosecond)
		hit, ready, err = a.Poll("late", 0, coordinator.NewHashes(nil, 0))
		require.True(t, ready)
		require.Zero(t, hit.Tokens)
		require.ErrorIs(t, err, ErrNoAnswer)

		notReady(t, a, "late", 49) // the connection serves on
		<-held
		(<-held).reply()
		synctest.Wait()
		hit, ready, err = a.Poll("late", 0, coordinator.NewHashes(nil, 0))
		require.True(t, ready)
		require.NoError(t, err)
		require.EqualValues(t, 49, hit.Tokens)
		require.True(t, a.empty())
	})
}

func TestAsyncCloseCancelsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, held := heldServer()
		a := fakeAsync(t, f)
		notReady(t, a, "r", 48)
		<-held
		done := make(chan error, 1)
		go func() { done <- a.reset(background) }()
		<-held
		a.transport.close()
		require.ErrorIs(t, <-done, ErrConnect)
		for _, id := range []string{"r", "r", "new"} {
			hit, ready, err := a.Poll(id, 48, coordinator.NewHashes(nil, 0))
			require.True(t, ready)
			require.Zero(t, hit.Tokens)
			require.ErrorIs(t, err, ErrConnect)
		}
		require.True(t, a.empty())
		a.Discard("r")
		a.transport.close()
	})
}

// At its bounds the client removes answered ids first, and then returns ErrPending.
func TestAsyncMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, held := heldServer()
		a := fakeAsync(t, f, WithTimeout(time.Hour))
		a.maxIDs, a.maxBytes = 3, 100
		for i := range uint32(3) {
			notReady(t, a, fmt.Sprint(i), i)
		}
		_, ready, err := a.Poll("3", 3, coordinator.NewHashes(nil, 0))
		require.True(t, ready)
		require.ErrorIs(t, err, ErrPending)
		for range 2 {
			(<-held).reply()
			synctest.Wait()
		}
		notReady(t, a, "3", 3) // in the place of 0, answered longest ago
		(<-held).reply()
		(<-held).reply()
		synctest.Wait()
		hit, ready, err := a.Poll("1", 1, coordinator.NewHashes(nil, 0))
		require.True(t, ready)
		require.NoError(t, err)
		require.EqualValues(t, 1, hit.Tokens)
		notReady(t, a, "0", 70)
		(<-held).reply()
		synctest.Wait()
		hit, ready, _ = a.Poll("0", 1, coordinator.NewHashes(nil, 0))
		require.True(t, ready)
		require.EqualValues(t, 70, hit.Tokens)

		_, ready, err = a.Poll("large", 1, coordinator.NewHashes(make([]byte, 101), 1))
		require.True(t, ready)
		require.ErrorIs(t, err, ErrPending)
		_, ready, err = a.Poll("fits", 1, coordinator.NewHashes(make([]byte, 100), 1))
		require.False(t, ready)
		require.NoError(t, err)
	})
}

// Many goroutines may poll, also for one id.
func TestAsyncConcurrent(t *testing.T) {
	noLeaks(t)
	a := fakeAsync(t, &fakeServer{}, WithTimeout(lookuptest.Patience))
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			hashes := make([]byte, 3200)
			for i := range 200 {
				own := fmt.Sprint(g, " ", i)
				_, _, _ = a.Poll("shared", 7, coordinator.NewHashes(hashes, 32))
				if _, _, err := a.Poll(own, int64(i), coordinator.NewHashes(hashes, 32)); err != nil {
					t.Error(err)
				}
				if i%3 == 0 {
					a.Discard(own)
				} else if hit, err := pollReady(t, a, own); err != nil || int(hit) != i {
					t.Error(hit, err)
				}
			}
		})
	}
	all.Wait()
	a.Discard("shared")
	require.Eventually(t, a.empty, lookuptest.Patience, time.Millisecond)
}

// A scheduler defers what is not answered, retries it the next step, and aborts
// some; ids come again. No answer of an earlier use is ever served, whatever order
// the answers come in and however often the connection is lost.
func TestAsyncScheduler(t *testing.T) {
	failed := 0
	for seed := range uint64(scaled(20)) {
		synctest.Test(t, func(t *testing.T) { failed += schedule(t, rand.New(rand.NewPCG(1, seed))) })
	}
	require.Positive(t, failed)
}

// schedule returns how many lookups have failed: few, as they are sent again once.
func schedule(t *testing.T, rng *rand.Rand) (failed int) {
	var mu sync.Mutex
	random := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	f := &fakeServer{
		pipes: true,
		answer: func(r *fakeRequest) {
			switch n := random(1000); {
			case n < 5:
				r.conn.hangUp()
			case n < 400:
				r.reply()
			default:
				time.AfterFunc(time.Duration(random(30))*time.Millisecond, r.reply)
			}
		},
		budget: func() int { return random(200000) },
	}
	a := fakeAsync(t, f, WithTimeout(500*time.Millisecond))
	uses := map[string]uint32{} // what the present use of an id asked, while it is pending
	var use uint32
	served, aborted := 0, 0
	for range 2000 {
		for range 4 {
			id := fmt.Sprint(random(40))
			asked, pending := uses[id]
			if !pending {
				use++
				asked = use
			}
			says := asked
			if pending {
				says = 1 << 31 // ignored
			}
			hit, ready, err := a.Poll(id, int64(says), coordinator.NewHashes(make([]byte, 32*random(20)), 32))
			switch {
			case !ready:
				require.NoError(t, err)
				require.Zero(t, hit.Tokens)
				uses[id] = asked
			case err != nil:
				require.ErrorIs(t, err, ErrConnect)
				require.Zero(t, hit.Tokens)
				delete(uses, id)
				failed++
			default:
				require.EqualValues(t, asked, hit.Tokens, "the answer to another use of the id")
				delete(uses, id)
				served++
			}
			if random(8) == 0 {
				a.Discard(id)
				delete(uses, id)
				aborted++
			}
		}
		time.Sleep(time.Millisecond)
	}
	require.Greater(t, served, 500)
	require.Greater(t, aborted, 500)
	for id := range uses {
		a.Discard(id)
	}
	time.Sleep(5 * time.Second) // a connection on which nothing comes is given up after one
	require.True(t, a.empty())
	require.Zero(t, a.transport.inFlight.len())
	return failed
}
