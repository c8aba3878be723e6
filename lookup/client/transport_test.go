package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

var background = context.Background()

// All requests are answered by a real server, whatever holds the connections.
func TestClientAllRequests(t *testing.T) {
	noLeaks(t)
	s := startServer(t, blocks16, server.Limits{})
	c, err := Dial(background, s.Addrs()[0], WithTimeout(lookuptest.Patience))
	require.NoError(t, err)
	defer c.Close()
	keys := lookuptest.Chain("all", 8, 32)
	require.NoError(t, ping(c))
	require.NoError(t, c.Store(background, coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	hit, err := c.Lookup(background, 128, coordinator.NewHashes(keys, 32))
	require.NoError(t, err)
	require.EqualValues(t, 128, hit.Tokens)
	require.NoError(t, c.Evict(background, coordinator.GroupRank{}, coordinator.NewHashes(keys[4*32:], 32)))
	e, err := c.Explain(background, 128, coordinator.NewHashes(keys, 32))
	require.NoError(t, err)
	require.EqualValues(t, 64, e.HitTokens)
	require.EqualValues(t, 4, statOf(t, c).Entries)
	plan, err := c.Plan(background, 128, coordinator.NewHashes(keys, 32))
	require.NoError(t, err)
	require.EqualValues(t, 64, plan.Hit.Tokens)
	require.True(t, len(plan.Masks) == 1 && plan.Masks[0].At(3) && !plan.Masks[0].At(4), plan)
	masks, err := c.StoreMask(background, 64, 0, -1)
	require.NoError(t, err)
	require.Equal(t, []api.GroupMask{{Group: 0, End: 4, All: true}}, masks)
	require.NoError(t, c.ResetRank(background, coordinator.GroupRank{Group: coordinator.AnyRank, PPRank: coordinator.AnyRank}))
	require.Zero(t, statOf(t, c).Entries)
	require.ErrorIs(t, c.ResetRank(background, coordinator.GroupRank{TPRank: 2}), ErrRefused)
	require.NoError(t, c.Store(background, coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	require.ErrorIs(t, c.Store(background, coordinator.GroupRank{Group: 9}, coordinator.NewHashes(keys, 32)), ErrRefused)
	_, err = c.Lookup(background, 17, coordinator.NewHashes(keys, 32))
	require.ErrorIs(t, err, ErrRefused)
	require.NoError(t, c.Reset(background))
	hit, err = c.Lookup(background, 128, coordinator.NewHashes(keys, 32))
	require.NoError(t, err)
	require.Zero(t, hit.Tokens)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	_, err = c.Lookup(background, 128, coordinator.NewHashes(keys, 32))
	require.ErrorIs(t, err, ErrConnect)
	require.ErrorIs(t, err, net.ErrClosed)
}

// hasLost reports whether the client has no connection.
func (c *Client) hasLost() bool {
	c.transport.mu.Lock()
	defer c.transport.mu.Unlock()
	return c.transport.conn == nil
}

// A cancelled call ends soon, with its cause, wherever it was, and nothing reads its arguments any longer. What was begun
// is sent to its end, so the connection serves others.
func TestClientCancel(t *testing.T) {
	noLeaks(t)
	want := make([]byte, 8<<20) // more than the buffers of a socket
	for i := range want {
		want[i] = byte(i >> 7)
	}
	blob := make([]byte, len(want))
	eachKind(t, func(t *testing.T, secure bool) {
		for _, write := range []bool{false, true} {
			t.Run(map[bool]string{false: "waiting", true: "writing"}[write], func(t *testing.T) {
				released := make(chan struct{})
				release := sync.OnceFunc(func() { close(released) })
				f := &fakeServer{secure: secure, limits: api.Limits{MaxInFlight: 100, MaxInFlightBytes: 1 << 30}, answer: func(r *fakeRequest) {
					<-released
					if sent := r.frames[len(r.frames)-1]; len(sent) == len(want) && !bytes.Equal(sent, want) {
						t.Error("the copy does not go on where the blob was left")
					}
					r.reply()
				}}
				c := fakeClient(t, f)
				defer release()
				if write { // the peer reads nothing behind this
					ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
					_, err := c.Lookup(ctx, 7, coordinator.NewHashes(nil, 0))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					cancel()
				}
				for _, after := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
					copy(blob, want)
					ctx, cancel := context.WithCancel(background)
					timer := time.AfterFunc(after, cancel)
					begun := time.Now()
					_, err := c.Lookup(ctx, 7, coordinator.NewHashes(blob, 32))
					clear(blob) // the race detector knows whether someone reads it
					require.ErrorIs(t, err, context.Canceled)
					require.NoError(t, typed(err))
					require.Less(t, time.Since(begun), after+lookuptest.Patience/2)
					timer.Stop()
				}
				release()
				hit, err := c.Lookup(background, 9, coordinator.NewHashes(nil, 0))
				require.NoError(t, err)
				require.EqualValues(t, 9, hit.Tokens)
				require.EqualValues(t, 1, f.dials.Load())
			})
		}
	})
}

// The reply to an abandoned call is dropped, also if its slot is in use again.
func TestClientPipelineLateReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan *fakeRequest, 10)
		f := &fakeServer{pipes: true, answer: func(r *fakeRequest) { held <- r }}
		c := fakeClient(t, f, WithTimeout(lookuptest.Patience))
		ctx, cancel := context.WithTimeout(background, 5*time.Millisecond)
		_, err := c.Lookup(ctx, 1, coordinator.NewHashes(nil, 0))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		expired := <-held
		expired.reply()
		for i := range uint32(5) {
			go func() { (<-held).reply() }()
			hit, err := c.Lookup(background, int64(100+i), coordinator.NewHashes(nil, 0))
			require.NoError(t, err)
			require.EqualValues(t, 100+i, hit.Tokens)
		}
		require.Zero(t, c.transport.inFlight.len())
		expired.reply() // once more: nobody asked
		synctest.Wait()
		require.True(t, c.hasLost(), "a reply to nothing is not of this protocol")
	})
}

// At most as many requests and bytes are in flight as the server has told. The others wait, in
// order, and may be abandoned.
func TestClientLimits(t *testing.T) {
	noLeaks(t)
	for name, c := range map[string]struct {
		limits api.Limits
		want   int64
	}{
		"told":            {api.Limits{MaxInFlight: 100, MaxInFlightBytes: 1 << 20}, 100},
		"bytes":           {api.Limits{MaxInFlight: 100, MaxInFlightBytes: 20 * (128 + 320)}, 20},
		"not told":        {api.Limits{}, 64},
		"less than one":   {api.Limits{MaxInFlight: 1, MaxInFlightBytes: 1}, 1},
		"more than there": {api.Limits{MaxInFlight: 1 << 20, MaxInFlightBytes: 1 << 40}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			var seen atomic.Int64
			held := make(chan *fakeRequest, 2000)
			f := &fakeServer{limits: c.limits, answer: func(r *fakeRequest) { seen.Add(1); held <- r }}
			cl := fakeClient(t, f)
			asks := make([]BatchLookup, 1000)
			for i := range asks {
				asks[i] = BatchLookup{NumTokens: int64(i), Hashes: coordinator.NewHashes(make([]byte, 320), 32)}
			}
			done := make(chan error, 1)
			go func() { done <- cl.Batch(background, asks) }()
			lookuptest.Eventually(t, "all that may be are in flight", func() bool { return seen.Load() == c.want })
			ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
			defer cancel()
			if c.want < 1000 {
				_, err := cl.Lookup(ctx, 1, coordinator.NewHashes(nil, 0))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.EqualValues(t, c.want, seen.Load())
			}
			for i := range asks {
				r := <-held
				require.EqualValues(t, i, r.numTokens, "in order")
				r.reply()
			}
			require.NoError(t, <-done)
			for i := range asks {
				require.NoError(t, asks[i].Err)
				require.EqualValues(t, i, asks[i].Hit.Tokens)
			}
		})
	}
}

// A request that is refused as busy is sent again, ever later, until it is served or its time is up.
func TestClientBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := 8
		var at []time.Duration
		begun := time.Now()
		f := &fakeServer{pipes: true, answer: func(r *fakeRequest) {
			if r.numTokens == 1 {
				r.reply()
				return
			}
			at = append(at, time.Since(begun))
			if busy--; busy >= 0 {
				r.conn.send(append(append([]byte{}, r.envelope...), refusalOf(api.Refusal{Refusal: api.RefusalBusy})...))
				return
			}
			r.reply()
		}}
		c := fakeClient(t, f)
		a := c.Async()
		other, err := c.Lookup(background, 1, coordinator.NewHashes(nil, 0))
		require.NoError(t, err)
		require.EqualValues(t, 1, other.Tokens)
		hit, err := c.Lookup(background, 48, coordinator.NewHashes(make([]byte, 64), 32))
		require.NoError(t, err)
		require.EqualValues(t, 48, hit.Tokens)
		ms := time.Millisecond
		require.Equal(t, []time.Duration{0, 10 * ms, 30 * ms, 70 * ms, 150 * ms, 310 * ms, 630 * ms, 1130 * ms, 1630 * ms}, at)

		busy = 3
		notReady(t, a, "r", 48)
		time.Sleep(time.Second)
		hit, ready, err := a.Poll("r", 0, coordinator.NewHashes(nil, 0))
		require.NoError(t, err)
		require.True(t, ready)
		require.EqualValues(t, 48, hit.Tokens)

		busy = 1 << 30
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, err = c.Lookup(ctx, 48, coordinator.NewHashes(nil, 0))
		require.ErrorIs(t, err, ErrNoAnswer)
		require.ErrorIs(t, err, ErrBusy)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		go func() { time.Sleep(15 * ms); _ = c.Close() }()
		_, err = c.Lookup(background, 48, coordinator.NewHashes(nil, 0))
		require.ErrorIs(t, err, net.ErrClosed, "close does not wait for the next try")
		synctest.Wait()
	})
}

// refusalOf is the reply 00 with a text and a refusal.
func refusalOf(r api.Refusal) []byte {
	doc, _ := json.Marshal(r)
	return lookuptest.Encode([]byte{0}, []byte("because"), doc)
}

// A connection without replies is closed, and the next one serves.
func TestClientPipelineSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		silent.Store(true)
		f := &fakeServer{pipes: true, answer: func(r *fakeRequest) {
			if !silent.Load() {
				r.reply()
			}
		}}
		c := fakeClient(t, f, WithTimeout(time.Second))
		begun := time.Now()
		_, err := c.Lookup(background, 7, coordinator.NewHashes(nil, 0))
		require.ErrorIs(t, err, ErrNoAnswer)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begun))
		_, err = c.Lookup(background, 7, coordinator.NewHashes(nil, 0))
		require.ErrorIs(t, err, ErrNoAnswer)
		require.EqualValues(t, 1, f.dials.Load())
		silent.Store(false)
		synctest.Wait()
		require.True(t, c.hasLost())
		hit, err := c.Lookup(background, 8, coordinator.NewHashes(nil, 0))
		require.NoError(t, err)
		require.EqualValues(t, 8, hit.Tokens)
		require.EqualValues(t, 2, f.dials.Load())
	})
}

// Batches are answered completely, in whatever order the server answers.
func TestClientBatch(t *testing.T) {
	noLeaks(t)
	var mu sync.Mutex
	var held []*fakeRequest
	want := 0
	f := &fakeServer{answer: func(r *fakeRequest) {
		mu.Lock()
		defer mu.Unlock()
		if held = append(held, r); len(held) == want {
			for _, i := range rand.Perm(len(held)) {
				if r := held[i]; r.numTokens%10 == 3 {
					r.conn.send(netproto.AppendRefusal(nil, r.envelope, netproto.StatusFailed, "no threes", nil))
				} else {
					r.reply()
				}
			}
			held = nil
		}
	}}
	c := fakeClient(t, f, WithTimeout(lookuptest.Patience))
	for _, n := range []int{0, 1, 5, 60} {
		asks := make([]BatchLookup, n+1)
		for i := range asks {
			asks[i] = BatchLookup{NumTokens: int64(i), Hashes: coordinator.NewHashes(make([]byte, 32*(i%3)), 32)}
		}
		asks[n].Hashes = coordinator.NewHashes(nil, 1<<16)
		mu.Lock()
		want = n
		mu.Unlock()
		require.NoError(t, c.Batch(background, asks))
		for i, a := range asks {
			switch {
			case i == n:
				require.ErrorIs(t, a.Err, ErrRequest)
			case i%10 == 3:
				require.ErrorIs(t, a.Err, ErrRefused)
				require.ErrorContains(t, a.Err, "no threes")
			default:
				require.NoError(t, a.Err)
				require.EqualValues(t, i, a.Hit.Tokens)
			}
		}
	}
}

func TestClientBatchLost(t *testing.T) {
	noLeaks(t)
	var n atomic.Int64
	f := &fakeServer{answer: func(r *fakeRequest) {
		if n.Add(1)%6 == 0 {
			r.conn.hangUp()
			return
		}
		r.reply()
	}}
	c := fakeClient(t, f, WithTimeout(lookuptest.Patience))
	asks := make([]BatchLookup, 20)
	for i := range asks {
		asks[i].NumTokens = 1
	}
	err := c.Batch(background, asks)
	require.ErrorIs(t, err, ErrConnect)
	for _, a := range asks {
		if a.Err != nil {
			require.ErrorIs(t, a.Err, ErrConnect)
			require.Zero(t, a.Hit.Tokens)
		} else {
			require.EqualValues(t, 1, a.Hit.Tokens)
		}
	}
	require.Error(t, asks[19].Err)
	ctx, cancel := context.WithCancel(background)
	cancel()
	require.ErrorIs(t, c.Batch(ctx, asks), context.Canceled)
	require.ErrorIs(t, asks[0].Err, context.Canceled)
}

// While a server cannot be reached, attempts become rarer, each backoff is within its
// bounds, and calls fail at once, all with one text. How long they do is in a field.
func TestClientBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts []time.Time
		var ends []time.Time // of the pauses
		var retryAt time.Time
		var mu sync.Mutex
		d := dialerOf(func(context.Context) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			require.False(t, time.Now().Before(retryAt))
			attempts = append(attempts, time.Now())
			return nil, lookuptest.ErrStore
		})
		c := lazyClient(t, d, defaultTimeout)
		for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(time.Millisecond) {
			now := time.Now()
			_, err := c.Lookup(background, 7, coordinator.NewHashes(nil, 0))
			require.ErrorIs(t, err, ErrConnect)
			require.ErrorIs(t, err, lookuptest.ErrStore)
			require.EqualError(t, err, ErrConnect.Error()+": "+lookuptest.ErrStore.Error())
			require.Zero(t, time.Since(now))
			paused, ok := errors.AsType[*BackoffError](err)
			require.True(t, ok)
			synctest.Wait() // a dial that is due now
			mu.Lock()
			if len(attempts) == len(ends) {
				require.Equal(t, ends[len(ends)-1], now.Add(paused.RetryIn), "the end of one pause")
			} else {
				ends = append(ends, now.Add(paused.RetryIn))
			}
			retryAt = now.Add(paused.RetryIn)
			mu.Unlock()
		}
		mu.Lock()
		defer mu.Unlock()
		pause, spread := minBackoff, map[time.Duration]bool{}
		for i := 1; i < len(attempts); i++ {
			got := attempts[i].Sub(attempts[i-1])
			require.GreaterOrEqual(t, got, pause/2, "attempt %d", i)
			require.LessOrEqual(t, got, pause*3/2+2*time.Millisecond, "attempt %d", i)
			if pause = min(2*pause, maxBackoff); pause == maxBackoff {
				spread[got] = true
			}
		}
		require.Greater(t, len(attempts), 15)
		require.Greater(t, len(spread), 3, "pauses vary")
	})
}

// The text of a lost connection does not have the client's own port, which is another each time.
func TestClientErrorWithoutOwnPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	d, err := newConfig(nil).dialer(l.Addr().String())
	require.NoError(t, err)
	c := lazyClient(t, d, lookuptest.Patience)
	failed := make(chan error, 1)
	go func() { failed <- ping(c) }()
	nc, err := l.Accept()
	require.NoError(t, err)
	_, err = nc.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, nc.(*net.TCPConn).SetLinger(0)) // a reset
	require.NoError(t, nc.Close())
	err = <-failed
	require.ErrorIs(t, err, ErrConnect)
	require.ErrorContains(t, err, l.Addr().String())
	require.NotContains(t, err.Error(), "->")
}

// What is dialed for an address. One without a port has that of servers.
func TestDialedAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1": "tcp 127.0.0.1:7557", "tls://[::1]": "tcp [::1]:7557", "tcp://a:1": "tcp a:1", "ipc:///run/s": "unix /run/s",
	} {
		_, err := Dial(background, addr, WithDialer(func(_ context.Context, network, address string) (net.Conn, error) {
			return nil, errors.New("dialed " + network + " " + address)
		}))
		require.EqualError(t, err, ErrConnect.Error()+": dialed "+want)
	}
	for _, addr := range []string{"", "tcp://", "ipc://", "inproc://x", "udp://127.0.0.1:1"} {
		_, err := Dial(background, addr)
		require.ErrorIs(t, err, ErrRequest, addr)
	}
}

func TestClientLookupDoesNotAllocate(t *testing.T) {
	if bufpool.Debug || lookuptest.Race {
		t.Skip("debug builds allocate")
	}
	noLeaks(t)
	s := startServer(t, blocks16, server.Limits{})
	keys := lookuptest.Chain("a", 500, 32)
	cancellable, cancel := context.WithCancel(background)
	defer cancel()
	deadline, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	c := dialTest(t, s)
	require.NoError(t, c.Store(background, coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	for kind, ctx := range map[string]context.Context{"background": background, "cancellable": cancellable, "deadline": deadline} {
		t.Run(kind, func(t *testing.T) {
			lookuptest.Eventually(t, "a lookup allocates nothing", func() bool {
				return testing.AllocsPerRun(200, func() {
					if hit, err := c.Lookup(ctx, 8000, coordinator.NewHashes(keys, 32)); hit.Tokens != 8000 || err != nil {
						t.Error(hit.Tokens, err)
					}
				}) == 0
			})
		})
	}
}

// A second answer to a request, while another request has its slot, fails the connection.
func TestClientRepeatedReply(t *testing.T) {
	noLeaks(t)
	var first *fakeRequest
	f := &fakeServer{}
	f.answer = func(r *fakeRequest) {
		if first == nil {
			first = r
		}
		first.reply()
	}
	c := fakeClient(t, f, WithTimeout(lookuptest.Patience))
	asks := []BatchLookup{{NumTokens: 1}}
	require.NoError(t, c.Batch(background, asks))
	require.EqualValues(t, 1, asks[0].Hit.Tokens)
	asks[0].NumTokens = 2
	require.ErrorIs(t, c.Batch(background, asks), ErrReply)
	require.ErrorIs(t, asks[0].Err, ErrReply)
	require.Zero(t, asks[0].Hit.Tokens)
}

// After a recovery the backoff begins at its minimum again.
func TestClientBackoffBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		f := &fakeServer{pipes: true}
		d := dialerOf(func(context.Context) (net.Conn, error) {
			if away.Load() {
				return nil, lookuptest.ErrStore
			}
			return f.connect()
		})
		f.answer = func(r *fakeRequest) {
			if away.Load() {
				r.conn.hangUp()
				return
			}
			r.reply()
		}
		c, err := dialClient(background, d, newConfig(nil))
		require.NoError(t, err)
		ask := func() error { _, err := c.Lookup(background, 7, coordinator.NewHashes(nil, 0)); return err }
		for range 3 {
			require.NoError(t, ask())
			away.Store(true)
			require.ErrorIs(t, ask(), os.ErrDeadlineExceeded) // the connection is lost
			require.ErrorIs(t, ask(), lookuptest.ErrStore)
			away.Store(false)
			require.ErrorIs(t, ask(), lookuptest.ErrStore, "pausing")
			time.Sleep(minBackoff * 3) // the second pause at most
			require.NoError(t, ask())
			away.Store(true)
			for range 2000 {
				require.Error(t, ask())
				time.Sleep(time.Millisecond)
			}
			away.Store(false)
			time.Sleep(maxBackoff * 3 / 2)
		}
		require.NoError(t, c.Close())
		f.all.Wait()
	})
}

// blackHole is a dialer whose attempts end at their deadline.
func blackHole() *dialer {
	return dialerOf(func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
}

// Close ends a call that is dialing, with the error of any call.
func TestClientCloseWhileDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lazyClient(t, blackHole(), time.Minute)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		failed := make(chan error)
		go func() { failed <- c.Reset(ctx) }()
		synctest.Wait()
		require.NoError(t, c.Close())
		var err error
		select {
		case err = <-failed:
		case <-time.After(lookuptest.Patience):
			t.Error("the call goes on")
			cancel()
			err = <-failed
		}
		require.ErrorIs(t, err, ErrConnect)
		require.ErrorIs(t, err, net.ErrClosed)
		require.NotErrorIs(t, err, context.Canceled, "which is its caller's")
	})
}

// A dial that ends at the client's timeout and one that ends at a context's deadline have
// different errors. The error does not match for a later call.
func TestClientTimeoutWhileDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lazyClient(t, blackHole(), time.Second)
		err := ping(c)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		err = ping(c)
		require.ErrorAs(t, err, new(*BackoffError))
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)

		ctx, cancel := context.WithTimeout(background, time.Second/2)
		defer cancel()
		require.ErrorIs(t, lazyClient(t, blackHole(), time.Second).Reset(ctx), context.DeadlineExceeded)
	})
}

// A call with hardly any time left does not begin a backoff.
func TestClientImpatientCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{pipes: true}
		defer f.all.Wait()
		c := lazyClient(t, dialerOf(func(ctx context.Context) (net.Conn, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(minBackoff / 2): // a round trip
				return f.connect()
			}
		}), defaultTimeout)
		defer c.Close()
		ctx, cancel := context.WithTimeout(background, minBackoff/4)
		defer cancel()
		require.ErrorIs(t, c.Reset(ctx), context.DeadlineExceeded)
		require.NoError(t, ping(c))
	})
}

// A batch without a valid lookup needs no server.
func TestClientBatchOfNothing(t *testing.T) {
	c := lazyClient(t, (&fakeServer{refuse: func() error { return lookuptest.ErrStore }}).dialer(), defaultTimeout)
	require.NoError(t, c.Batch(background, nil))
	asks := []BatchLookup{{Hashes: coordinator.NewHashes(nil, 1<<16)}}
	require.NoError(t, c.Batch(background, asks))
	require.ErrorIs(t, asks[0].Err, ErrRequest)
	ctx, cancel := context.WithCancel(background)
	cancel()
	require.NoError(t, c.Batch(ctx, asks))
}

// Close ends calls in progress.
func TestClientCloseUnderWay(t *testing.T) {
	noLeaks(t)
	eachKind(t, func(t *testing.T, secure bool) {
		asked := make(chan struct{}, 20)
		f := &fakeServer{secure: secure, answer: func(*fakeRequest) { asked <- struct{}{} }}
		c := fakeClient(t, f)
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() {
				if err := ping(c); !errors.Is(err, ErrConnect) {
					t.Error(err)
				}
			})
		}
		for range 5 {
			<-asked
		}
		require.NoError(t, c.Close())
		calls.Wait()
	})
}
