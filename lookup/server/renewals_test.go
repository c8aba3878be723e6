package server

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
)

// leasingStore is a store with leases.
type leasingStore struct{ lookuptest.KeyStore }

func (*leasingStore) Lease() backend.Lease { return backend.Lease{Duration: time.Minute} }

// A renew is answered before the store is asked. What waits is in the account, and what does not fit is dropped and
// counted.
func TestRenewals(t *testing.T) {
	asked, answer := make(chan []string, 100), make(chan struct{})
	store := &leasingStore{lookuptest.KeyStore{Before: func(ctx context.Context, op string, keys []string) error {
		asked <- keys
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return ctx.Err()
	}}}
	const maxMemory = 8 << 20
	account := lookup.NewMemoryAccount(maxMemory)
	remote := patient
	remote.Memory = account
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: blocks16.Pool, Backend: store, Remote: remote})
	require.NoError(t, err)
	server, err := New(service, Config{Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}, Memory: account})
	require.NoError(t, err)
	startTest(t, server)
	c, err := client.Dial(t.Context(), server.Addrs()[0])
	require.NoError(t, err)
	defer c.Close()
	renew := func(name string, n int) {
		require.NoError(t, c.Renew(t.Context(), coordinator.NewHashes(lookuptest.Chain(name, n, 32), 32)))
	}
	renew("first", 2)
	require.Len(t, <-asked, 2)
	before, _, _ := account.Usage()
	renew("second", 200)
	after, _, _ := account.Usage()
	require.GreaterOrEqual(t, after, before+32*200)
	for i := range 20 {
		renew(string(rune('a'+i)), 10_000)
	}
	require.EqualValues(t, 20, server.Stat().RenewalsDropped)
	require.Zero(t, server.Stat().MemoryRefused)
	require.Less(t, server.Stat().Memory, int64(maxMemory))
	close(answer)
	require.Eventually(t, func() bool { return server.Stat().RenewedKeys == 202 }, lookuptest.Patience, time.Millisecond)
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
