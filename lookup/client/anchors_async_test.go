package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// pollUntil polls until there is an answer, as a scheduler would, and returns how
// many polls that took.
func pollUntil(t *testing.T, c *AsyncClient, id string, tokens uint32, hashes []byte) (hit uint32, polls int) {
	t.Helper()
	for deadline := time.Now().Add(lookuptest.Patience); ; polls++ {
		hit, ready, err := c.Poll(id, int64(tokens), netproto.NewHashes(hashes, 32))
		require.NoError(t, err)
		if ready {
			return uint32(hit.Tokens), polls
		}
		require.True(t, time.Now().Before(deadline), "no answer")
		time.Sleep(50 * time.Microsecond)
	}
}

func TestAsyncByAnchors(t *testing.T) {
	s := startServer(t, blocks16, server.Limits{})
	ctx := context.Background()
	store := dialTest(t, s)
	async, err := DialAsync(ctx, s.Addrs()[0], WithTimeout(lookuptest.Patience), WithAnchors(100))
	require.NoError(t, err)
	defer async.Close()

	const n = 1000
	hashes := make([]byte, n*32)
	_, _ = rand.Read(hashes)
	require.NoError(t, store.StoreChain(ctx, netproto.GroupRank{}, 0, nil, netproto.NewHashes(hashes, 32)))
	hit, _ := pollUntil(t, async, "first", n*16, hashes)
	assert.EqualValues(t, n*16, hit)
	assert.Zero(t, s.Stat().Anchored, "by all hashes, while the server is asked how")

	for range 2 { // the second time without digests
		hit, _ = pollUntil(t, async, "whole", n*16, hashes)
		assert.EqualValues(t, n*16, hit)
	}
	assert.EqualValues(t, 2, s.Stat().Anchored)
	assert.Zero(t, s.Stat().AnchoredUndetermined)

	for _, at := range []int{0, 1, 99, 500, n - 1} {
		cut := slices.Clone(hashes)
		_, _ = rand.Read(cut[at*32:])
		hit, _ = pollUntil(t, async, "cut", n*16, cut)
		assert.EqualValues(t, at*16, hit)
	}
	assert.EqualValues(t, 7, s.Stat().Anchored)
	assert.EqualValues(t, 4, s.Stat().AnchoredUndetermined, "a miss of the first block needs one exchange, others two")

	before := s.Stat().Anchored
	hit, _ = pollUntil(t, async, "short", 99*16, hashes[:99*32])
	assert.EqualValues(t, 99*16, hit)
	assert.Equal(t, before, s.Stat().Anchored)
}

// A poll that continues a lookup needs the same hashes as the first.
func TestAsyncByAnchorsOtherHashes(t *testing.T) {
	s := startServer(t, blocks16, server.Limits{})
	ctx := context.Background()
	store := dialTest(t, s)
	async, err := DialAsync(ctx, s.Addrs()[0], WithTimeout(lookuptest.Patience), WithAnchors(1))
	require.NoError(t, err)
	defer async.Close()
	hashes := make([]byte, 500*32)
	_, _ = rand.Read(hashes)
	require.NoError(t, store.StoreChain(ctx, netproto.GroupRank{}, 0, nil, netproto.NewHashes(hashes[:250*32], 32)))
	pollUntil(t, async, "learn", 500*16, hashes)

	_, ready, err := async.Poll("a", 500*16, netproto.NewHashes(hashes, 32))
	require.NoError(t, err)
	require.False(t, ready)
	require.Eventually(t, func() bool { return s.Stat().AnchoredUndetermined == 1 }, lookuptest.Patience, time.Millisecond)
	require.Eventually(t, func() bool {
		_, ready, err = async.Poll("a", 16, netproto.NewHashes(hashes[:32], 32))
		return ready
	}, lookuptest.Patience, time.Millisecond)
	assert.ErrorIs(t, err, ErrRequest)

	_, ready, err = async.Poll("b", 500*16, netproto.NewHashes(hashes, 32))
	require.NoError(t, err)
	require.False(t, ready)
	async.Discard("b")
	hit, _ := pollUntil(t, async, "b", 500*16, hashes)
	assert.EqualValues(t, 250*16, hit)
	async.pipe.mu.Lock()
	defer async.pipe.mu.Unlock()
	assert.Empty(t, async.pending)
	assert.Zero(t, async.answered.Len())
	assert.Zero(t, async.copiedBytes)
}

// What exchanges by anchors copy counts while it waits to be sent, as what lookups
// copy does, and is released when it is written.
func TestAsyncByAnchorsMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, busy := &fakeServer{pipes: true}, make(chan struct{})
		f.answer = func(r *fakeRequest) {
			switch {
			case r.tag != "anchors":
				r.reply()
				if r.numTokens == 1 {
					<-busy // and reads no further
				}
			case binary.BigEndian.Uint32(r.frames[1][4:]) == 0:
				anchorsReply([]byte{netproto.AnchorsParams}, u32s(1, 1))(r)
			case len(r.frames[5]) < 100*32:
				anchorsReply([]byte{netproto.AnchorsMore}, u32s(0, 0, 100))(r)
			}
		}
		a := fakeAsync(t, f, WithAnchors(1), WithPending(100, 5000))
		hashes := lookuptest.Chain("a", 100, 32)
		poll := func(id string) error {
			_, ready, err := a.Poll(id, 1600, netproto.NewHashes(hashes, 32))
			require.Equal(t, ready, err != nil)
			return err
		}
		require.NoError(t, poll("learn"))
		synctest.Wait()
		pollUntil(t, a, "learn", 1600, hashes)
		ids := []string{"a", "b", "c"}
		for _, id := range ids {
			require.NoError(t, poll(id), "the first exchange")
		}
		synctest.Wait()
		notReady(t, a, "busy", 1)
		synctest.Wait()
		assert.NoError(t, poll("a"), "the second, with all hashes")
		assert.ErrorIs(t, poll("b"), ErrPending)
		assert.ErrorIs(t, poll("c"), ErrPending)
		close(busy)
		synctest.Wait()
		a.pipe.mu.Lock()
		assert.Zero(t, a.copiedBytes, "written")
		assert.Zero(t, cap(a.pending["a"].async.plan.Blob))
		a.pipe.mu.Unlock()
		a.Discard("a")
		a.Discard("busy")
		require.True(t, a.empty())
	})
}

// A server's parameters are not used for the server that replaces it.
func TestAsyncByAnchorsServerRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var serves atomic.Bool
		var anchored atomic.Int64
		var last atomic.Pointer[fakeConn]
		f := &fakeServer{pipes: true}
		f.answer = func(r *fakeRequest) {
			last.Store(r.conn)
			switch {
			case r.tag != "anchors":
				r.reply()
			case !serves.Load():
				r.conn.send(netproto.AppendFailed(nil, r.envelope, netproto.ErrUnknownTag.Error()))
			case binary.BigEndian.Uint32(r.frames[1][4:]) == 0:
				anchorsReply([]byte{netproto.AnchorsParams}, u32s(1, 1))(r)
			default:
				anchored.Add(1)
				anchorsReply([]byte{netproto.AnchorsHit}, u32s(1600))(r)
			}
		}
		a := fakeAsync(t, f, WithAnchors(1))
		hashes := lookuptest.Chain("a", 100, 32)
		ask := func() {
			hit, _ := pollUntil(t, a, "r", 1600, hashes)
			require.EqualValues(t, 1600, hit)
			synctest.Wait()
		}
		ask() // which asks how the server looks up by anchors, too
		serves.Store(true)
		last.Load().hangUp()
		synctest.Wait()
		notReady(t, a, "s", 16) // over a new connection
		synctest.Wait()
		require.EqualValues(t, 2, f.dials.Load())
		ask()
		ask()
		require.EqualValues(t, 1, anchored.Load())
	})
}

// What an exchange sends is copied, and hashed, while other polls go on.
func TestAsyncByAnchorsPreparesWithoutTheLock(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))) // with one, nobody looks in between
	const n = 1 << 17
	f := &fakeServer{answer: func(r *fakeRequest) {
		switch {
		case r.tag != "anchors":
			r.reply()
		case binary.BigEndian.Uint32(r.frames[1][4:]) == 0:
			anchorsReply([]byte{netproto.AnchorsParams}, u32s(1, 1))(r)
		case len(r.frames[5]) < n*32:
			anchorsReply([]byte{netproto.AnchorsMore}, u32s(0, 0, n))(r)
		default:
			anchorsReply([]byte{netproto.AnchorsHit}, u32s(n*16))(r)
		}
	}}
	a := fakeAsync(t, f, WithAnchors(1), WithTimeout(lookuptest.Patience))
	hashes := make([]byte, n*32)
	pollUntil(t, a, "learn", n*16, hashes)
	stop := make(chan struct{})
	var polls sync.WaitGroup
	polls.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				pollUntil(t, a, "long", n*16, hashes) // 4 MiB are copied for its second exchange
			}
		}
	})
	lookuptest.Eventually(t, "a call that is being prepared while the lock is free", func() bool {
		a.pipe.mu.Lock()
		defer a.pipe.mu.Unlock()
		cl := a.pending["long"]
		return cl != nil && cl.state == callPreparing && cl.async.plan != nil
	})
	close(stop)
	polls.Wait()
	a.pipe.mu.Lock()
	defer a.pipe.mu.Unlock()
	require.Zero(t, a.copiedBytes)
}

// A call that is discarded while it is prepared is not sent and keeps nothing.
func TestAsyncDiscardWhilePreparing(t *testing.T) {
	f, _ := heldServer()
	a := fakeAsync(t, f)
	for _, end := range []func(){func() { a.Discard("r") }, func() { require.NoError(t, a.Close()) }} {
		cl := &call{async: &asyncCall{client: a, id: "r"}}
		a.pipe.mu.Lock()
		hit, ready, _ := a.submit(cl, 100, func() error {
			end()
			cl.async.copied = copyBlob(make([]byte, 100))
			cl.blob = cl.async.copied.B
			return nil
		})
		require.Zero(t, hit)
		require.Equal(t, a.pipe.closed, ready)
		require.Nil(t, cl.async.copied)
		require.Zero(t, a.copiedBytes)
		require.Empty(t, a.pending)
		require.Empty(t, a.pipe.queue)
		a.pipe.mu.Unlock()
	}
}
