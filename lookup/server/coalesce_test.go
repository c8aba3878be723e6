package server

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// TestRemoteCancelled closes connections whose lookups are in flight.
func TestRemoteCancelled(t *testing.T) {
	keys := lookuptest.Chain("a", 8, 32)
	store := lookuptest.Filled(t, keys)
	var held, ended atomic.Int64
	store.Before = func(ctx context.Context, op string, _ []string) error {
		if op != "exists" {
			return nil
		}
		held.Add(1)
		<-ctx.Done()
		ended.Add(1)
		return lookuptest.ErrStore // as a client whose connection was cut would say
	}
	cfg := patient
	cfg.BreakerFailures, cfg.Timeout = 2, 10*lookuptest.Patience // nothing ends by itself
	server := startRemote(t, store, cfg, Limits{})
	for i := range int64(10) { // a lookup, or an explain
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		if i%2 == 0 {
			p.Send(t, lookupOf("", keys))
		} else {
			p.Send(t, append(netproto.AppendLookupFrom(nil, nil, netproto.TagExplain, 128, 0, 32, len(keys)), keys...))
		}
		lookuptest.Eventually(t, "it is asked", func() bool { return held.Load() == i+1 })
		require.NoError(t, p.Close())
		lookuptest.Eventually(t, "it is cancelled", func() bool { return ended.Load() == i+1 })
	}
	lookuptest.Eventually(t, "nothing is held", func() bool { return server.admission.Held() == 0 })
	st := server.Stat()
	require.Equal(t, "closed", st.BackendState, "peers cannot open the breaker")
	require.Zero(t, st.BackendErrors+st.BackendTimeouts+st.BackendRejected)
	require.Zero(t, st.Lookups)
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
		return append(netproto.AppendLookup(nil, idEnvelope(id), uint32(16*n), 32, len(slow)), slow...)
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
