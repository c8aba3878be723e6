package server

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
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
		reset(t, p)
		lookuptest.Eventually(t, "it is cancelled", func() bool { return ended.Load() == i+1 })
	}
	lookuptest.Eventually(t, "nothing is held", func() bool { return server.heldBytes() == 0 })
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
	reset(t, p)
	lookuptest.Eventually(t, "it is gone", func() bool { return server.connections.Load() == 0 && server.Stat().InFlight == 0 })
	require.Greater(t, server.heldBytes(), int64(len(keys)), "a worker still has its hashes")
	close(g.Open)
	lookuptest.Eventually(t, "all is stored", func() bool { return server.Stat().Stored == 8 })
	lookuptest.Eventually(t, "nothing is held", func() bool { return server.heldBytes() == 0 })
}
