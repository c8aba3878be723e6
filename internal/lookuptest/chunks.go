package lookuptest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// Storer is the part of a service that the helpers use.
type Storer interface {
	Pool() coordinator.Pool
	api.PrefixCache
}

// coordOf returns the coordinator of a service's pool.
func coordOf(t testing.TB, s Storer) *coordinator.Coordinator {
	t.Helper()
	c, err := coordinator.New(s.Pool())
	require.NoError(t, err)
	return c
}

// StorePrefix stores the chunks of the first n hashes of a chain, for all groups and ranks,
// as engines do. Hashes are 32 bytes long.
func StorePrefix(t testing.TB, s Storer, hashes []byte, n int) {
	t.Helper()
	c := coordOf(t, s)
	for g := range c.NumGroups() {
		stride := c.Stride(g)
		var keys []byte
		for i := stride - 1; i < n; i += stride {
			keys = append(keys, hashes[i*32:(i+1)*32]...)
		}
		for _, r := range c.Ranks(g) {
			at := coordinator.GroupRank{Group: uint16(g), TPRank: uint16(r.TP), PPRank: uint16(r.PP)}
			require.NoError(t, s.Store(t.Context(), at, coordinator.NewHashes(keys, 32)))
		}
	}
}
