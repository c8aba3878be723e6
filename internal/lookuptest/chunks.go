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

// Pools returns pools of several kinds, with hash blocks of 16 tokens.
func Pools() map[string]coordinator.Pool {
	full := coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 16}
	full32 := coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 32}
	window := coordinator.Group{Kind: coordinator.SlidingWindow, BlockSize: 32, SlidingWindow: 128}
	mamba := coordinator.Group{Kind: coordinator.Mamba, BlockSize: 64, MambaCacheMode: "align"}
	eagle := coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 16, IsEagleGroup: true}
	return map[string]coordinator.Pool{
		"one group":      {HashBlockSize: 16},
		"larger blocks":  {HashBlockSize: 16, Groups: []coordinator.Group{full32}},
		"hybrid":         {HashBlockSize: 16, Groups: []coordinator.Group{full, window, mamba}},
		"newest":         {HashBlockSize: 16, Groups: []coordinator.Group{full32, window}, VLLM: "0.28.0"},
		"eagle":          {HashBlockSize: 16, Groups: []coordinator.Group{eagle, window}, UseEagle: true},
		"eagle and full": {HashBlockSize: 16, Groups: []coordinator.Group{eagle, full}, UseEagle: true},
		"ranks":          {HashBlockSize: 16, Groups: []coordinator.Group{full, window}, TPSize: 2, PPSize: 2},
	}
}
