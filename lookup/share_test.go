package lookup

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// followers returns how many lookups follow others.
func (r *remote) followers() (n int) {
	r.sharing.mu.Lock()
	defer r.sharing.mu.Unlock()
	for _, a := range r.sharing.under {
		n += a.followers
	}
	return n
}

func TestShareOneCall(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := filled(t, keys), newGate()
	store.holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{})
	calls := store.calls.Load()
	var peers []*peer
	for range 8 {
		p := dialPeer(t, server)
		peers = append(peers, p)
		p.send(t, lookupOf("", keys))
	}
	eventually(t, "seven follow", func() bool { return server.service.remote.followers() == 7 })
	close(g.open)
	for _, p := range peers {
		p.expect(t, hitText(8))
	}
	require.EqualValues(t, 1, store.calls.Load()-calls)
	require.EqualValues(t, 8, server.Stat().Lookups)
	require.EqualValues(t, 8*128, server.Stat().HitTokens)
	require.Zero(t, server.service.remote.bytes.Load())
	peers[0].send(t, lookupOf("", keys))
	peers[0].expect(t, hitText(8))
	require.EqualValues(t, 2, store.calls.Load()-calls, "it is over")
}

// TestShareEqualOnly asks what differs in one respect at a time.
func TestShareEqualOnly(t *testing.T) {
	keys := chain("a", 8, 32)
	other := bytes.Clone(keys)
	other[0] ^= 1 // no chain: the last hash is the same
	store, g := filled(t, keys), newGate()
	store.holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{})
	p := dialPeer(t, server)
	tokens := func(id string, n uint32, hashLen int, keys []byte) []byte {
		return append(netproto.AppendLookup(nil, idEnvelope(id), n, hashLen, len(keys)), keys...)
	}
	p.send(t, lookupOf("1", keys), lookupOf("2", other), lookupOf("3", keys[:7*32]), tokens("4", 256, 32, keys), tokens("5", 128, 16, keys))
	eventually(t, "each asks", func() bool { return g.held.Load() == 5 })
	close(g.open)
	got := map[string]string{}
	for range 5 {
		id, body, _ := p.reply(t)
		got[id] = body
	}
	require.Equal(t, map[string]string{"1": hitText(8), "2": hitText(0), "3": hitText(7), "4": hitText(8), "5": hitText(0)}, got)
}

// TestShareForgets has a store land while an equal lookup is under way.
func TestShareForgets(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := &keyStore{}, newGate()
	var asked atomic.Int64
	store.before = func(ctx context.Context, op string, _ []string) error {
		if op == "exists" && asked.Add(1) == 1 {
			return g.wait(ctx)
		}
		return nil
	}
	server := startRemote(t, store, patient, Limits{})
	early, late := dialPeer(t, server), dialPeer(t, server)
	early.send(t, lookupOf("", keys))
	eventually(t, "it is asked", func() bool { return g.held.Load() == 1 })
	for _, change := range [][]byte{storeOf("", netproto.TagStore, keys), storeOf("", netproto.TagEvict, keys[:32]), plainOf("", netproto.TagReset)} {
		late.send(t, change, lookupOf("", keys))
		late.expect(t, "01")
		_, body, _ := late.reply(t)
		want := hitText(0)
		if bytes.Equal(change, storeOf("", netproto.TagStore, keys)) {
			want = hitText(8)
		}
		require.Equal(t, want, body)
	}
	require.EqualValues(t, 4, asked.Load(), "nobody has followed")
	close(g.open)
	early.reply(t)
}

// TestShareDeadlines lets a follower live longer than its leader, and shorter.
func TestShareDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := chain("a", 8, 32)
		hashes := netproto.NewHashes(keys, 32)
		store := filled(t, keys)
		s, err := NewService(ServiceConfig{Pool: blocks16.Pool, Backend: store})
		require.NoError(t, err)
		var calls atomic.Int64
		store.before = func(ctx context.Context, _ string, _ []string) error {
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
		ask := func(after, timeout, took time.Duration, want uint32) func() {
			return func() {
				time.Sleep(after)
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				hit, err := s.askRemote(ctx, 128, hashes.Len(), hashes)
				require.NoError(t, err)
				require.Equal(t, want, hit)
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
		require.EqualValues(t, 1, s.Stat().BackendShared, "the last two that had time")
		require.Empty(t, s.remote.sharing.under)
	})
}

// TestRemoteOneDeadline spends a lookup's time in several rounds.
func TestRemoteOneDeadline(t *testing.T) {
	for _, n := range []int{100, 1000} { // one round, two
		synctest.Test(t, func(t *testing.T) {
			keys := chain("a", n, 32)
			store := filled(t, keys)
			var calls atomic.Int64
			store.before = func(ctx context.Context, _ string, _ []string) error {
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
			hit, err := s.Lookup(uint64(16*n), netproto.NewHashes(keys, 32))
			require.NoError(t, err)
			if n == 100 {
				require.EqualValues(t, 16*n, hit)
				require.Equal(t, 60*time.Millisecond, time.Since(begun))
				return
			}
			require.Zero(t, hit, "the prefix of the first round is no answer")
			require.Equal(t, 100*time.Millisecond, time.Since(begun))
			require.EqualValues(t, 2, calls.Load())
			require.EqualValues(t, 1, s.Stat().BackendTimeouts)
		})
	}
}

// TestRemoteStrategies counts the keys of a cold lookup over the wire.
func TestRemoteStrategies(t *testing.T) {
	keys := chain("a", 8192, 32)
	for strategy, want := range map[Strategy]int64{Gallop: 64, AskAll: 8192} {
		store := &keyStore{}
		var asked atomic.Int64
		store.before = func(_ context.Context, _ string, keys []string) error { asked.Add(int64(len(keys))); return nil }
		p := dialPeer(t, startRemote(t, store, RemoteConfig{Strategy: strategy, Timeout: patience}, Limits{}))
		p.send(t, lookupOf("", keys))
		p.expect(t, hitText(0))
		require.Equal(t, want, asked.Load(), strategy)
	}
}

func TestStrategyText(t *testing.T) {
	for _, s := range []Strategy{Gallop, AskAll} {
		text, err := s.MarshalText()
		require.NoError(t, err)
		var got Strategy
		require.NoError(t, got.UnmarshalText(text))
		require.Equal(t, s, got)
	}
	_, err := Strategy(9).MarshalText()
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, new(Strategy).UnmarshalText([]byte("all")), "want gallop or ask_all")
	require.Equal(t, "strategy(9)", Strategy(9).String())
}

// TestRemoteCancelled closes connections whose lookups are being asked.
func TestRemoteCancelled(t *testing.T) {
	keys := chain("a", 8, 32)
	store := filled(t, keys)
	var held, ended atomic.Int64
	opened := make(chan struct{}) // of the eleventh call; the others only end
	store.before = func(ctx context.Context, op string, _ []string) error {
		if op != "exists" {
			return nil
		}
		var open chan struct{}
		if held.Add(1) == 11 {
			open = opened
		}
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			ended.Add(1)
			return errStore // as a client whose connection was cut would say
		}
	}
	cfg := patient
	cfg.BreakerFailures, cfg.Timeout = 2, 10*patience // nothing ends by itself
	server := startRemote(t, store, cfg, Limits{})
	r := server.service.remote
	for i := range int64(10) { // a lookup, or an explain
		p := dialPeer(t, server)
		if i%2 == 0 {
			p.send(t, lookupOf("", keys))
		} else {
			p.send(t, append(netproto.AppendExplain(nil, nil, 128, 32, len(keys)), keys...))
		}
		eventually(t, "it is asked", func() bool { return held.Load() == i+1 })
		require.NoError(t, p.Close())
		eventually(t, "it is cancelled", func() bool { return ended.Load() == i+1 })
	}
	eventually(t, "nothing is held", func() bool { return r.bytes.Load() == 0 })
	st := server.Stat()
	require.Equal(t, "closed", st.BackendState, "peers cannot open the breaker")
	require.Zero(t, st.BackendErrors+st.BackendTimeouts+st.BackendRejected)
	require.Zero(t, st.Lookups)

	ps := []*peer{dialPeer(t, server), dialPeer(t, server), dialPeer(t, server)}
	for i, p := range ps {
		p.send(t, lookupOf("", keys))
		eventually(t, "it is there", func() bool { return held.Load() == 11 && r.followers() == i })
	}
	require.NoError(t, ps[0].Close()) // which leads
	eventually(t, "it is gone", func() bool { return server.connections.Load() == 2 })
	require.NoError(t, ps[1].Close())
	eventually(t, "it is gone too", func() bool { return server.flying.Load() == 1 })
	eventually(t, "one follows", func() bool { return r.followers() == 1 })
	require.EqualValues(t, 10, ended.Load(), "it goes on for others")
	close(opened)
	ps[2].expect(t, hitText(8))
	require.EqualValues(t, 11, held.Load())
	require.EqualValues(t, 1, server.Stat().Lookups)

	ps = []*peer{dialPeer(t, server), dialPeer(t, server)}
	for i, p := range ps {
		p.send(t, lookupOf("", keys))
		eventually(t, "it is there", func() bool { return held.Load() == 12 && r.followers() == i })
	}
	require.NoError(t, ps[0].Close())
	time.Sleep(20 * time.Millisecond)
	require.EqualValues(t, 10, ended.Load())
	require.NoError(t, ps[1].Close())
	eventually(t, "it ends with the last", func() bool { return ended.Load() == 11 })
}

// TestRemoteChangeOutlivesItsConnection closes a connection while its store is
// under way.
func TestRemoteChangeOutlivesItsConnection(t *testing.T) {
	keys := chain("a", 8, 32)
	store, g := &keyStore{}, newGate()
	store.holding(g, "store", "")
	server := startRemote(t, store, patient, Limits{})
	p := dialPeer(t, server)
	p.send(t, storeOf("", netproto.TagStore, keys))
	eventually(t, "it is under way", func() bool { return g.held.Load() == 1 })
	require.NoError(t, p.Close())
	eventually(t, "it is gone", func() bool { return server.connections.Load() == 0 })
	close(g.open)
	eventually(t, "all is stored", func() bool { return server.Stat().Stored == 8 })
}

// TestRemoteSlowStore has a store hang for some keys: ping, stat and lookups of
// other keys do not wait, on other connections and on the same one, and with every
// worker held nobody waits longer than for his own time.
func TestRemoteSlowStore(t *testing.T) {
	slow, fast := chain("slow", 8, 32), chain("fast", 8, 32)
	store, g := filled(t, slow, fast), newGate() // never opened
	hanging := fmt.Sprintf("%x", slow[7*32:])
	store.holding(g, "exists", hanging)
	tokens := func(id string, n int) []byte { // each of them another question
		return append(netproto.AppendLookup(nil, idEnvelope(id), uint32(16*n), 32, len(slow)), slow...)
	}
	cfg := patient
	cfg.Workers = 8
	server := startRemote(t, store, cfg, Limits{})
	bad, good := dialPeer(t, server), dialPeer(t, server)
	for i := range 6 { // of the seven of eight workers that one connection may have
		bad.send(t, tokens(fmt.Sprint("slow", i), 8+i))
	}
	eventually(t, "they hang", func() bool { return g.held.Load() == 6 })
	for i := range 50 {
		for _, p := range []*peer{bad, good} {
			p.send(t, plainOf("p", netproto.TagPing), plainOf("s", netproto.TagStat))
			p.expect(t, "p 01", "s 01")
			p.send(t, lookupOf(fmt.Sprint(i), fast))
			p.expect(t, fmt.Sprint(i, " ", hitText(8)))
		}
	}
	require.EqualValues(t, 6, server.Stat().InFlight, "they still hang")

	server = startRemote(t, store, RemoteConfig{Timeout: time.Second, Workers: 8, BreakerFailures: 1000}, Limits{})
	bad, worse, good := dialPeer(t, server), dialPeer(t, server), dialPeer(t, server)
	held := g.held.Load()
	for i := range 100 { // more than there are workers
		bad.send(t, tokens(fmt.Sprint("more", i), 20+i))
		worse.send(t, tokens(fmt.Sprint("more", i), 200+i))
	}
	eventually(t, "all workers hang", func() bool { return g.held.Load() >= held+8 })
	begun := time.Now()
	good.send(t, lookupOf("", fast), plainOf("p", netproto.TagPing), plainOf("s", netproto.TagStat))
	good.expect(t, "p 01", "s 01") // before the lookup that waits
	good.reply(t)
	require.Less(t, time.Since(begun), patience/2, "which is less than those before it take one after the other")
	require.EqualValues(t, "closed", server.Stat().BackendState)
}

// TestShareCrowd asks a few questions from many goroutines with all kinds of
// patience; answers are right, or 0 when time was up.
func TestShareCrowd(t *testing.T) {
	chains := [][]byte{chain("a", 300, 32), chain("b", 200, 32), chain("c", 20, 32)}
	synctest.Test(t, func(t *testing.T) {
		store := filled(t, chains...)
		store.before = func(ctx context.Context, _ string, _ []string) error {
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
						_ = s.Evict(Place{}, chain("none", 1, 32), 32)
					}
					own := bytes.Clone(keys)
					hit, err := s.askRemote(ctx, int64(16*n), n, netproto.NewHashes(own, 32))
					clear(own) // whoever still reads it sees something else
					if err != nil || hit != 0 && hit != uint32(16*n) {
						t.Errorf("%d of %d blocks, %v", hit/16, n, err)
					}
					if hit > 0 {
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
		require.Empty(t, s.remote.sharing.under)
	})
}
