package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// newService returns the service of a pool of so many ranks over a memory index.
func newService(t testing.TB, ranks int) *lookup.Service {
	t.Helper()
	pool := lookuptest.Blocks16
	pool.TPSize, pool.NumKVHead = ranks, ranks
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
	require.NoError(t, err)
	return service
}

// Pools that stay keep their blocks, counters and connections. New ones are served. Connections of those that have changed or
// are gone are answered what they have sent, and then closed.
func TestSetPools(t *testing.T) {
	own, a, b := newService(t, 1), newService(t, 1), newService(t, 1)
	accept := func(pool coordinator.Pool) (*lookup.Service, error) {
		return lookup.NewService(lookup.ServiceConfig{Pool: pool})
	}
	server, err := New(own, Config{
		Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}, Loops: 2, AcceptPool: accept,
		Pools: []ServedPool{{Name: "a", Service: a}, {Name: "b", Service: b}},
	})
	require.NoError(t, err)
	startTest(t, server)
	dial := func(opts ...client.Option) *client.Client { return dialTest(t, server, opts...) }
	keys := coordinator.NewHashes(lookuptest.Chain("k", 8, 32), 32)
	hit := func(c *client.Client) int64 {
		hit, err := c.Lookup(t.Context(), 128, keys)
		require.NoError(t, err)
		return hit.Tokens
	}
	store := func(c *client.Client) { require.NoError(t, c.Store(t.Context(), coordinator.GroupRank{}, keys)) }
	kept, changed, described := dial(client.WithPoolName("a")), dial(), dial(client.WithPool("d", lookuptest.Blocks16))
	for _, c := range []*client.Client{kept, changed, described, dial(client.WithPoolName("b"))} {
		store(c)
		require.EqualValues(t, 128, hit(c))
	}
	peer := func(name string) *lookuptest.Peer {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		reply := p.Ask(t, []byte("pool"), []byte(`{"name":"`+name+`"}`))
		require.Equal(t, []byte{1}, reply[0], "%s: %q", name, reply)
		return p
	}
	stays, leaves, halfway, ofDescribed := peer("a"), peer("b"), peer("b"), peer("d")
	_, err = halfway.Write([]byte("\x01\x04pi"))
	require.NoError(t, err)
	lookuptest.Eventually(t, "begun", func() bool { return server.conns.countBusy() == 1 })

	_, err = server.SetPools(nil, nil, nil)
	require.ErrorIs(t, err, api.ErrConfig)
	_, err = server.SetPools(own, []ServedPool{{Name: "a"}}, nil)
	require.ErrorIs(t, err, api.ErrConfig)
	require.EqualValues(t, 3, server.Stat().Pools-1, "nothing has changed")

	gone, err := server.SetPools(newService(t, 2), []ServedPool{{Name: "a", Service: a}, {Name: "c", Service: newService(t, 1)}}, nil)
	require.NoError(t, err)
	require.ElementsMatch(t, []GonePool{{"", 8}, {"b", 8}}, gone)
	leaves.ClosedWithin(t)
	_, err = halfway.Write([]byte("ng\x00\x00"))
	require.NoError(t, err)
	require.Equal(t, [][]byte{{1}, {}}, halfway.Next(t), "what was sent is answered")
	halfway.ClosedWithin(t)
	require.Len(t, stays.Ask(t, []byte("ping"), nil), 2)
	require.Len(t, ofDescribed.Ask(t, []byte("ping"), nil), 2, "described pools stay")
	require.EqualValues(t, 128, hit(kept))
	require.EqualValues(t, 2, statOf(t, kept).Lookups)
	require.EqualValues(t, 128, hit(described))
	require.Zero(t, hit(dial(client.WithPoolName("c"))))
	require.Zero(t, hit(dial()), "the new pool of this name is empty")
	_, err = client.Dial(t.Context(), server.Addrs()[0], client.WithPoolName("b"), client.WithTimeout(lookuptest.Patience))
	require.Error(t, err)
	_, err = client.Dial(t.Context(), server.Addrs()[0], client.WithPool("e", lookuptest.Blocks16), client.WithTimeout(lookuptest.Patience))
	require.ErrorContains(t, err, "accepts no further ones")
	require.NotZero(t, server.peers.closed[closedPoolGone].Load())
	lookuptest.Eventually(t, "their accounts are closed", func() bool {
		server.pools.closeGone()
		server.pools.mu.Lock()
		defer server.pools.mu.Unlock()
		return len(server.pools.gone) == 0
	})

	gone, err = server.SetPools(server.pools.ownPool().service, []ServedPool{{Name: "a", Service: a}, {Name: "d", Service: newService(t, 1)}}, nil)
	require.NoError(t, err)
	require.ElementsMatch(t, []GonePool{{"c", 0}, {"d", 8}}, gone, "a named pool takes the name of a described one")
	ofDescribed.ClosedWithin(t)
	server.pools.mu.Lock()
	defer server.pools.mu.Unlock()
	require.Zero(t, server.pools.described)
}
