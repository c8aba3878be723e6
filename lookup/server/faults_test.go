package server

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// Faults that once happened.

// A negative limit is refused, whichever it is, and not taken as none.
func TestNegativeLimits(t *testing.T) {
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	fields := reflect.TypeFor[Limits]()
	for i := range fields.NumField() {
		var limits Limits
		reflect.ValueOf(&limits).Elem().Field(i).SetInt(-1)
		name := fields.Field(i).Name
		_, err := New(service, Config{Limits: limits})
		require.ErrorIs(t, err, api.ErrConfig, name)
		require.ErrorContains(t, err, name+" is -1")
	}
}

// While the service of a described pool is made, which can take long, everything else about pools goes on:
// connections come and go, name and describe others, and ask for figures. Whoever describes the same pool
// meanwhile gets the same one.
func TestPoolIsMadeBesideOthers(t *testing.T) {
	making, open := make(chan struct{}, 2), make(chan struct{})
	own, err := memoryService(lookuptest.Blocks16)
	require.NoError(t, err)
	server := startPools(t, own, Config{MaxPools: 2, AcceptPool: func(pool coordinator.Pool) (*lookup.Service, error) {
		if pool.ModelName == "slow" {
			making <- struct{}{}
			<-open
		}
		return memoryService(pool)
	}})
	require.NoError(t, dialTest(t, server, client.WithPool("quick", modelPool("quick"))).Close())
	var slow []*lookuptest.Peer
	describeSlow := func() {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		slow = append(slow, p)
		p.Send(t, lookuptest.Encode([]byte("pool"), []byte(`{"model_name":"slow"}`)))
		<-making
	}
	describeSlow() // there are two workers at least
	for _, description := range []any{map[string]string{"name": ""}, map[string]string{"name": "quick"}, modelPool("quick"), modelPool("another")} {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		require.Equal(t, []byte{1}, describe(t, p, description)[0])
		require.NotEmpty(t, poolOf(t, p).PoolNames)
		require.NoError(t, p.Close())
	}
	require.Len(t, server.Pools(), 3)
	require.Len(t, server.PoolStats(), 3)
	lookuptest.Eventually(t, "those connections are gone", func() bool { return server.connections.Load() == 1 })

	describeSlow()
	close(open)
	var names []string
	for _, p := range slow {
		require.Equal(t, []byte{1}, p.Next(t)[0])
		names = append(names, poolOf(t, p).Pool)
	}
	require.Equal(t, names[0], names[1])
	require.Contains(t, namesOf(server), names[0])
	require.Len(t, server.Pools(), 3, "the one that was described first has given way")
	server.pools.mu.Lock()
	defer server.pools.mu.Unlock()
	require.Equal(t, 2, server.pools.byName[names[0]].connections)
}
