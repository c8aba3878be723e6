package server

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
)

// leasingStore is a store with leases.
type leasingStore struct{ lookuptest.KeyStore }

func (*leasingStore) Lease() backend.Lease { return backend.Lease{Duration: time.Hour} }

// A renew is answered before the store is asked, and what does not fit the queue is dropped.
func TestRenewals(t *testing.T) {
	asked, answer := make(chan []string, 2*maxRenewals), make(chan struct{})
	store := &leasingStore{lookuptest.KeyStore{Before: func(ctx context.Context, op string, keys []string) error {
		asked <- keys
		<-answer
		return nil
	}}}
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: patient})
	require.NoError(t, err)
	server, err := New(service, Config{Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}})
	require.NoError(t, err)
	startTest(t, server)
	c, err := client.Dial(t.Context(), server.Addrs()[0])
	require.NoError(t, err)
	defer c.Close()
	chain := func(name string) coordinator.Hashes { return coordinator.NewHashes(lookuptest.Chain(name, 2, 32), 32) }
	require.NoError(t, c.Renew(t.Context(), chain("first")))
	require.Len(t, <-asked, 2)
	const tooMany = 3
	for i := range maxRenewals + tooMany {
		require.NoError(t, c.Renew(t.Context(), chain(string(rune('a'+i)))))
	}
	close(answer)
	require.Eventually(t, func() bool { return server.Stat().RenewedKeys == 2*(1+maxRenewals) }, lookuptest.Patience, time.Millisecond)
	require.Zero(t, server.renewals.bytes.Load())
}

// The bytes of the queue are bounded, but for a single request.
func TestRenewalBytes(t *testing.T) {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: blocks16.Pool, Backend: &leasingStore{}})
	require.NoError(t, err)
	r := renewals{queue: make(chan renewal, maxRenewals)}
	add := func(size int) {
		b := bufpool.GetFor(size)
		b.B = append(b.B, make([]byte, size)...)
		r.add(renewal{service: service, hashes: b, hashLen: 32})
	}
	for _, size := range []int{2 * maxRenewalBytes, 32} {
		add(size)
	}
	require.Len(t, r.queue, 1)
	r.stop()
	require.Empty(t, r.queue)
	require.Zero(t, r.bytes.Load())
}

// The reply to pool says for which engines there is something to renew.
func TestPoolSaysRenew(t *testing.T) {
	for want, cfg := range map[string]lookup.ServiceConfig{
		"":       {Backend: &lookuptest.KeyStore{}},
		"auto":   {Backend: &leasingStore{}},
		"always": {Backend: &leasingStore{}, Remote: lookup.RemoteConfig{Renew: lookup.RenewAlways}},
	} {
		cfg.Pool = blocks16.Pool
		service, err := lookup.NewService(cfg)
		require.NoError(t, err)
		require.Equal(t, want, (&pool{service: service}).reply(service.Coordinator()).Renew)
	}
}
