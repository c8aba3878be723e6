package server

import (
	"testing"

	"github.com/stretchr/testify/require"

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
		{Service: own}, {Name: "m", Service: named},
	}, server.Pools())
	dialTest(t, server, client.WithPool("z", numberedPool(1)))
	dialTest(t, server, client.WithPool("a", engine()))
	require.Equal(t, []string{"", "a", "m", "z"}, namesOf(server))
	got := server.Pools()[1]
	require.True(t, got.Described)
	require.Equal(t, "org/llama", got.Service.Pool().ModelName)
	require.Equal(t, []string{"z"}, namesOf(startPools(t, nil, Config{Pools: []ServedPool{{Name: "z", Service: named}}})))
	require.Empty(t, startPools(t, nil, Config{AcceptPool: memoryService}).Pools())
}
