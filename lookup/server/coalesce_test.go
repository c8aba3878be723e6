package server

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

func TestCoalesceOneCall(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
	store.Holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{})
	calls := store.Calls.Load()
	var peers []*lookuptest.Peer
	for range 8 {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		peers = append(peers, p)
		p.Send(t, lookupOf("", keys))
	}
	lookuptest.Eventually(t, "seven follow", func() bool { return server.service.Remote().Usage().Followers == 7 })
	close(g.Open)
	for _, p := range peers {
		p.Expect(t, hitText(8))
	}
	require.EqualValues(t, 1, store.Calls.Load()-calls)
	require.EqualValues(t, 8, server.Stat().Lookups)
	require.EqualValues(t, 8*128, server.Stat().HitTokens)
	require.Zero(t, server.service.Remote().Usage().HashBytes)
	peers[0].Send(t, lookupOf("", keys))
	peers[0].Expect(t, hitText(8))
	require.EqualValues(t, 2, store.Calls.Load()-calls, "it is over")
}

// TestCoalesceEqualOnly makes lookups that differ in one respect each.
func TestCoalesceEqualOnly(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	other := bytes.Clone(keys)
	other[0] ^= 1 // no chain: the last hash is the same
	store, g := lookuptest.Filled(t, keys), lookuptest.NewGate()
	store.Holding(g, "exists", "")
	server := startRemote(t, store, patient, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	tokens := func(id string, n uint32, hashLen int, keys []byte) []byte {
		return append(netproto.AppendLookup(nil, idEnvelope(id), netproto.TagLookup, n, hashLen, len(keys)), keys...)
	}
	p.Send(t, lookupOf("1", keys), lookupOf("2", other), lookupOf("3", keys[:7*32]), tokens("4", 256, 32, keys), tokens("5", 128, 16, keys))
	lookuptest.Eventually(t, "each asks", func() bool { return g.Held.Load() == 5 })
	close(g.Open)
	got := map[string]string{}
	for range 5 {
		id, body, _ := p.Reply(t)
		got[id] = body
	}
	require.Equal(t, map[string]string{"1": hitText(8), "2": hitText(0), "3": hitText(7), "4": hitText(8), "5": hitText(0)}, got)
}

// TestCoalesceEndsAtChange makes changes while an equal lookup is in flight.
func TestCoalesceEndsAtChange(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, g := &lookuptest.KeyStore{}, lookuptest.NewGate()
	var asked atomic.Int64
	store.Before = func(ctx context.Context, op string, _ []string) error {
		if op == "exists" && asked.Add(1) == 1 {
			return g.Wait(ctx)
		}
		return nil
	}
	server := startRemote(t, store, patient, Limits{})
	early, late := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
	early.Send(t, lookupOf("", keys))
	lookuptest.Eventually(t, "it is asked", func() bool { return g.Held.Load() == 1 })
	for _, change := range [][]byte{storeOf("", netproto.TagStore, keys), storeOf("", netproto.TagEvict, keys[:32]), plainOf("", netproto.TagReset)} {
		late.Send(t, change, lookupOf("", keys))
		late.Expect(t, "01")
		_, body, _ := late.Reply(t)
		want := hitText(0)
		if bytes.Equal(change, storeOf("", netproto.TagStore, keys)) {
			want = hitText(8)
		}
		require.Equal(t, want, body)
	}
	require.EqualValues(t, 4, asked.Load(), "no lookup was coalesced")
	close(g.Open)
	early.Reply(t)
}

// TestRemoteStrategies counts the keys of a cold lookup over the wire.
func TestRemoteStrategies(t *testing.T) {
	keys := lookuptest.Chain("a", 8192, 32)
	for strategy, want := range map[lookup.Strategy]int64{lookup.Gallop: 64, lookup.SingleCall: 8192} {
		store := &lookuptest.KeyStore{}
		var asked atomic.Int64
		store.Before = func(_ context.Context, _ string, keys []string) error { asked.Add(int64(len(keys))); return nil }
		p := lookuptest.DialPeer(t, startRemote(t, store, lookup.RemoteConfig{Strategy: strategy, Timeout: lookuptest.Patience}, Limits{}).Addrs()[0])
		p.Send(t, lookupOf("", keys))
		p.Expect(t, hitText(0))
		require.Equal(t, want, asked.Load(), strategy)
	}
}

// TestRemoteCancelled closes connections whose lookups are in flight.
func TestRemoteCancelled(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store := lookuptest.Filled(t, keys)
	var held, ended atomic.Int64
	opened := make(chan struct{}) // of the eleventh call; the others only end
	store.Before = func(ctx context.Context, op string, _ []string) error {
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
			return lookuptest.ErrStore // as a client whose connection was cut would say
		}
	}
	cfg := patient
	cfg.BreakerFailures, cfg.Timeout = 2, 10*lookuptest.Patience // nothing ends by itself
	server := startRemote(t, store, cfg, Limits{})
	r := server.service.Remote()
	for i := range int64(10) { // a lookup, or an explain
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		if i%2 == 0 {
			p.Send(t, lookupOf("", keys))
		} else {
			p.Send(t, append(netproto.AppendLookup(nil, nil, netproto.TagExplain, 128, 32, len(keys)), keys...))
		}
		lookuptest.Eventually(t, "it is asked", func() bool { return held.Load() == i+1 })
		require.NoError(t, p.Close())
		lookuptest.Eventually(t, "it is cancelled", func() bool { return ended.Load() == i+1 })
	}
	lookuptest.Eventually(t, "nothing is held", func() bool { return r.Usage().HashBytes == 0 })
	st := server.Stat()
	require.Equal(t, "closed", st.BackendState, "peers cannot open the breaker")
	require.Zero(t, st.BackendErrors+st.BackendTimeouts+st.BackendRejected)
	require.Zero(t, st.Lookups)

	ps := []*lookuptest.Peer{lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])}
	for i, p := range ps {
		p.Send(t, lookupOf("", keys))
		lookuptest.Eventually(t, "it is there", func() bool { return held.Load() == 11 && r.Usage().Followers == i })
	}
	require.NoError(t, ps[0].Close()) // which leads
	lookuptest.Eventually(t, "it is gone", func() bool { return server.connections.Load() == 2 })
	require.NoError(t, ps[1].Close())
	lookuptest.Eventually(t, "it is gone too", func() bool { return server.inFlight.Load() == 1 })
	lookuptest.Eventually(t, "one follows", func() bool { return r.Usage().Followers == 1 })
	require.EqualValues(t, 10, ended.Load(), "it goes on for others")
	close(opened)
	ps[2].Expect(t, hitText(8))
	require.EqualValues(t, 11, held.Load())
	require.EqualValues(t, 1, server.Stat().Lookups)

	ps = []*lookuptest.Peer{lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])}
	for i, p := range ps {
		p.Send(t, lookupOf("", keys))
		lookuptest.Eventually(t, "it is there", func() bool { return held.Load() == 12 && r.Usage().Followers == i })
	}
	require.NoError(t, ps[0].Close())
	time.Sleep(20 * time.Millisecond)
	require.EqualValues(t, 10, ended.Load())
	require.NoError(t, ps[1].Close())
	lookuptest.Eventually(t, "it ends with the last", func() bool { return ended.Load() == 11 })
}

// TestRemoteChangeOutlivesItsConnection closes a connection while its store is
// in flight.
func TestRemoteChangeOutlivesItsConnection(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store, g := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(g, "store", "")
	server := startRemote(t, store, patient, Limits{})
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	p.Send(t, storeOf("", netproto.TagStore, keys))
	lookuptest.Eventually(t, "it is under way", func() bool { return g.Held.Load() == 1 })
	require.NoError(t, p.Close())
	lookuptest.Eventually(t, "it is gone", func() bool { return server.connections.Load() == 0 })
	close(g.Open)
	lookuptest.Eventually(t, "all is stored", func() bool { return server.Stat().Stored == 8 })
}

// TestRemoteSlowStore has a store hang for some keys: ping, stat and lookups of
// other keys do not wait, on other connections and on the same one, and with every
// worker held nobody waits longer than for his own time.
func TestRemoteSlowStore(t *testing.T) {
	slow, fast := lookuptest.Chain("slow", 8, 32), lookuptest.Chain("fast", 8, 32)
	store, g := lookuptest.Filled(t, slow, fast), lookuptest.NewGate() // never opened
	hanging := fmt.Sprintf("%x", slow[7*32:])
	store.Holding(g, "exists", hanging)
	tokens := func(id string, n int) []byte { // each of them another question
		return append(netproto.AppendLookup(nil, idEnvelope(id), netproto.TagLookup, uint32(16*n), 32, len(slow)), slow...)
	}
	cfg := patient
	cfg.Workers = 8
	server := startRemote(t, store, cfg, Limits{})
	bad, good := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
	for i := range 6 { // of the seven of eight workers that one connection may have
		bad.Send(t, tokens(fmt.Sprint("slow", i), 8+i))
	}
	lookuptest.Eventually(t, "they hang", func() bool { return g.Held.Load() == 6 })
	for i := range 50 {
		for _, p := range []*lookuptest.Peer{bad, good} {
			p.Send(t, plainOf("p", netproto.TagPing), plainOf("s", netproto.TagStat))
			p.Expect(t, "p 01", "s 01")
			p.Send(t, lookupOf(fmt.Sprint(i), fast))
			p.Expect(t, fmt.Sprint(i, " ", hitText(8)))
		}
	}
	require.EqualValues(t, 6, server.Stat().InFlight, "they still hang")

	server = startRemote(t, store, lookup.RemoteConfig{Timeout: time.Second, Workers: 8, BreakerFailures: 1000}, Limits{})
	bad, worse, good := lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0]), lookuptest.DialPeer(t, server.Addrs()[0])
	held := g.Held.Load()
	for i := range 100 { // more than there are workers
		bad.Send(t, tokens(fmt.Sprint("more", i), 20+i))
		worse.Send(t, tokens(fmt.Sprint("more", i), 200+i))
	}
	lookuptest.Eventually(t, "all workers hang", func() bool { return g.Held.Load() >= held+8 })
	begun := time.Now()
	good.Send(t, lookupOf("", fast), plainOf("p", netproto.TagPing), plainOf("s", netproto.TagStat))
	good.Expect(t, "p 01", "s 01") // before the lookup that waits
	good.Reply(t)
	require.Less(t, time.Since(begun), lookuptest.Patience/2, "which is less than those before it take one after the other")
	require.EqualValues(t, "closed", server.Stat().BackendState)
}
