package server

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// benchPrompt is how many hashes the prompts of BenchmarkStorePrompt have, and on how many
// ranks each of its groups is stored.
const benchHashes, benchRanks = 8192, 8

// benchPromptPool has four groups that keep every block.
var benchPromptPool = coordinator.Pool{HashBlockSize: 16, TPSize: benchRanks, Groups: []coordinator.Group{
	{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.FullAttention, BlockSize: 16, Variant: 1},
	{Kind: coordinator.FullAttention, BlockSize: 16, Variant: 2}, {Kind: coordinator.FullAttention, BlockSize: 16, Variant: 3},
}}

// BenchmarkStorePrompt stores new prompts of 8,192 hashes in four groups on eight ranks each, and
// reports keys (hash, group and rank) a second: in process by StoreChain for each group rank and by
// StorePrompt, and by StorePrompt through one connection, one at a time and two in flight.
func BenchmarkStorePrompt(b *testing.B) {
	all := api.PromptStore{NumTokens: 16 * benchHashes}
	inProcess := func(b *testing.B) *lookup.Service {
		s, err := lookup.NewService(lookup.ServiceConfig{Pool: benchPromptPool, Memory: index.Config{MaxBytes: 256 << 20}})
		require.NoError(b, err)
		return s
	}
	served := func(b *testing.B, opts ...client.Option) *client.Client {
		cfg := lookup.ServiceConfig{Pool: benchPromptPool, Memory: index.Config{MaxBytes: 256 << 20}}
		return dialTest(b, startServer(b, cfg, Limits{}), opts...)
	}
	stores := func(b *testing.B, cache api.PrefixCache) func(netproto.Hashes) {
		return func(hashes netproto.Hashes) {
			_, err := cache.StorePrompt(b.Context(), all, hashes)
			require.NoError(b, err)
		}
	}
	b.Run("in-process/chains", func(b *testing.B) {
		s := inProcess(b)
		benchPrompts(b, 1, func(hashes netproto.Hashes) {
			for g := range len(benchPromptPool.Groups) {
				for rank := range benchRanks {
					require.NoError(b, s.StoreChain(b.Context(), lookup.GroupRank{Group: uint16(g), TPRank: uint16(rank)}, 0, nil, hashes))
				}
			}
		})
	})
	b.Run("in-process/prompts", func(b *testing.B) { benchPrompts(b, 1, stores(b, inProcess(b))) })
	b.Run("wire/1", func(b *testing.B) { benchPrompts(b, 1, stores(b, served(b, client.WithConnections(1)))) })
	b.Run("wire/2", func(b *testing.B) { benchPrompts(b, 2, stores(b, served(b, client.WithPipeline()))) })
}

// benchPrompts stores prompts in so many goroutines.
func benchPrompts(b *testing.B, goroutines int, store func(netproto.Hashes)) {
	b.Helper()
	chains := make([][]byte, goroutines)
	for i := range chains {
		chains[i] = lookuptest.Chain(string(rune('a'+i)), benchHashes, 32)
	}
	var group sync.WaitGroup
	b.ResetTimer()
	for i, hashes := range chains {
		n := (b.N + i) / goroutines
		group.Go(func() {
			for round := range n {
				for at := 0; at < len(hashes); at += 32 { // a new chain
					binary.LittleEndian.PutUint64(hashes[at:], uint64(round)<<32|uint64(at)*uint64(2*i+1))
				}
				store(netproto.NewHashes(hashes, 32))
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)*benchHashes*float64(len(benchPromptPool.Groups)*benchRanks)/b.Elapsed().Seconds()/1e6, "Mkeys/s")
}
