package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/client"
)

// namesOf returns the names of the pools that a server serves.
func namesOf(server *Server) (names []string) {
	for _, p := range server.Pools() {
		names = append(names, p.Name)
	}
	return names
}

// Pools are the server's own, then the others by name, with what their clients are told of them.
func TestPools(t *testing.T) {
	own, err := memoryService(modelPool("own"))
	require.NoError(t, err)
	named, err := memoryService(modelPool("m"))
	require.NoError(t, err)
	server := startPools(t, own, Config{Pools: []ServedPool{{Name: "m", Service: named}}, AcceptPool: memoryService})
	require.Equal(t, []ServedPool{
		{Digest: server.pools.own.digest, Service: own}, {Name: "m", Digest: server.pools.byName["m"].digest, Service: named},
	}, server.Pools())
	dialTest(t, server, client.WithPool("z", numberedPool(1)))
	reply, _ := dialTest(t, server, client.WithPool("a", engine())).Pool()
	require.Equal(t, []string{"", "a", "m", "z"}, namesOf(server))
	got := server.Pools()[1]
	require.Equal(t, reply.Digest, got.Digest)
	require.True(t, got.Described)
	require.Equal(t, "org/llama", got.Service.Pool().ModelName)
	require.Equal(t, []string{"z"}, namesOf(startPools(t, nil, Config{Pools: []ServedPool{{Name: "z", Service: named}}})))
	require.Empty(t, startPools(t, nil, Config{AcceptPool: memoryService}).Pools())
}

// Described pools are the same on another server when they are described there again, also after JSON.
func TestDescribePoolAgain(t *testing.T) {
	first := startPools(t, nil, Config{AcceptPool: memoryService})
	thinned := engine()
	thinned.RetentionInterval = new(64)
	thinned.ModelName = "org/thinned"
	for _, d := range []struct {
		name string
		pool coordinator.Pool
	}{
		{"named", engine()}, {"", engine()}, {"", numberedPool(2)}, {"thinned", thinned}, {"", lookuptest.WindowPool},
		{"old", coordinator.Pool{VLLM: "0.24.0"}},
	} {
		dialTest(t, first, client.WithPool(d.name, d.pool))
	}
	second := startPools(t, nil, Config{AcceptPool: memoryService})
	for _, p := range first.Pools() {
		description := p.Service.Pool()
		text, err := json.Marshal(description)
		require.NoError(t, err)
		var read coordinator.Pool
		require.NoError(t, json.Unmarshal(text, &read))
		for range 2 {
			again, err := second.DescribePool(p.Name, read)
			require.NoError(t, err, p.Name)
			require.Equal(t, [2]string{p.Name, p.Digest}, [2]string{again.Name, again.Digest})
			require.True(t, again.Described)
			require.NotSame(t, p.Service, again.Service)
		}
		_, err = second.DescribePool(p.Name, p.Service.Pool())
		require.NoError(t, err)
	}
	require.Equal(t, namesOf(first), namesOf(second))
	hashes := coordinator.NewHashes(lookuptest.Chain("a", 4, 32), 32)
	p, err := second.DescribePool("", numberedPool(2))
	require.NoError(t, err)
	require.NoError(t, p.Service.Store(t.Context(), coordinator.GroupRank{}, hashes))
	c := dialTest(t, second, client.WithPool("", numberedPool(2)))
	require.EqualValues(t, 4, statOf(t, c).Entries, "a client has the pool that was described")
	require.Equal(t, namesOf(first), namesOf(second))
}

// A pool that was described has no connections: it gives way to what a client describes, or to another
// description of its name, but not to DescribePool of another one.
func TestDescribePoolGivesWay(t *testing.T) {
	server := startPools(t, nil, Config{MaxPools: 2, AcceptPool: memoryService})
	for i := range 2 {
		_, err := server.DescribePool(fmt.Sprint(i), numberedPool(i))
		require.NoError(t, err)
	}
	_, err := server.DescribePool("2", numberedPool(2))
	require.ErrorIs(t, err, errPoolsFull)
	require.Equal(t, []string{"0", "1"}, namesOf(server))
	_, err = server.DescribePool("1", numberedPool(3))
	require.NoError(t, err)
	dialTest(t, server, client.WithPool("4", numberedPool(4)))
	require.Equal(t, []string{"1", "4"}, namesOf(server))
	_, err = server.DescribePool("4", numberedPool(5))
	require.ErrorContains(t, err, errPoolDiffers.Error())
}

// DescribePool fails where a client's description does.
func TestDescribePoolRefused(t *testing.T) {
	own, err := memoryService(modelPool("own"))
	require.NoError(t, err)
	closed, open := startPools(t, own, Config{}), startPools(t, own, Config{AcceptPool: memoryService})
	same, err := closed.DescribePool("", modelPool("own"))
	require.NoError(t, err, "it is there")
	require.Equal(t, closed.Pools()[0], same)
	many, long := numberedPool(1), numberedPool(1)
	many.TPSize, many.NumKVHead, long.CachePrefix = 5000, 5000, strings.Repeat("x", maxDescribedText+1)
	for _, c := range []struct {
		server *Server
		name   string
		pool   coordinator.Pool
		want   string
	}{
		{open, "a b", numberedPool(1), "printable ASCII"},
		{open, strings.Repeat("x", MaxPoolName+1), numberedPool(1), "1 to 255"},
		{open, "", many, errPoolTooLarge.Error()}, {open, "", long, errPoolText.Error()},
		{open, "", coordinator.Pool{VLLM: "99.0"}, "the described pool: "}, {open, "", coordinator.Pool{HashBlockSize: -1}, "the described pool: "},
		{closed, "", modelPool("other"), errPoolDiffers.Error()}, {closed, "new", modelPool("own"), errNotAccepted.Error()},
	} {
		_, err := c.server.DescribePool(c.name, c.pool)
		require.ErrorContains(t, err, c.want, c.name)
		require.ErrorContains(t, err, "server: ")
		require.Len(t, c.server.Pools(), 1)
	}
}

// A tenant does not see a pool that was described, unless its credential names it.
func TestDescribePoolBesideTenants(t *testing.T) {
	server := startTenants(t, "a")
	server.pools.max = 2
	for _, name := range []string{"missing", "secret"} {
		_, err := server.DescribePool(name, modelPool(name))
		require.NoError(t, err)
	}
	p := dialTenant(t, server, "ab")
	require.Equal(t, []string{"missing", "a"}, poolOf(t, p).PoolNames)
	require.Equal(t, []byte{1}, describe(t, p, modelPool("missing"))[0])
	other := dialTenant(t, server, "b")
	for _, description := range []any{modelPool("secret"), map[string]string{"name": "secret"}} {
		require.Equal(t, errNotOfTenant.Error(), string(describe(t, other, description)[1]))
	}
}
