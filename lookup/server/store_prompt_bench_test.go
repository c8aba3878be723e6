package server

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// benchHashes is how many hashes the prompts of BenchmarkStorePrompt have, and benchRanks on how
// many ranks each of its groups is stored.
const benchHashes, benchRanks = 8192, 8

// benchGroups are four groups each: equal ones are stored together, the others one by one.
var benchGroups = map[string][]coordinator.Group{
	"equal": {
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.FullAttention, BlockSize: 16, Variant: 1},
		{Kind: coordinator.FullAttention, BlockSize: 16, Variant: 2}, {Kind: coordinator.FullAttention, BlockSize: 16, Variant: 3},
	},
	"unequal": {
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.FullAttention, BlockSize: 32},
		{Kind: coordinator.FullAttention, BlockSize: 64}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 33},
	},
}

// BenchmarkStorePrompt stores new prompts of 8,192 hashes in four groups on eight ranks each, and
// reports keys (hash, group and rank) a second: in process by Store for each group rank and by
// StorePrompt, and by StorePrompt through one connection, one at a time and two in flight.
func BenchmarkStorePrompt(b *testing.B) {
	for name, groups := range benchGroups {
		cfg := lookup.ServiceConfig{
			Pool:   coordinator.Pool{HashBlockSize: 16, TPSize: benchRanks, Groups: groups},
			Memory: index.Config{MaxBytes: 256 << 20},
		}
		inProcess := func(b *testing.B) *lookup.Service {
			s, err := lookup.NewService(cfg)
			require.NoError(b, err)
			return s
		}
		served := func(b *testing.B, opts ...client.Option) *client.Client {
			return dialTest(b, startServer(b, cfg, Limits{}), opts...)
		}
		b.Run(name+"/in-process/chains", func(b *testing.B) {
			s := inProcess(b)
			benchPrompts(b, 1, func(hashes coordinator.Hashes) int64 { return storeChains(b, s, hashes) })
		})
		for way, cache := range map[string]func(b *testing.B) (c api.PrefixCache, goroutines int){
			"in-process/prompts": func(b *testing.B) (api.PrefixCache, int) { return inProcess(b), 1 },
			"wire/1":             func(b *testing.B) (api.PrefixCache, int) { return served(b), 1 },
			"wire/2":             func(b *testing.B) (api.PrefixCache, int) { return served(b), 2 },
		} {
			b.Run(name+"/"+way, func(b *testing.B) {
				c, goroutines := cache(b)
				benchPrompts(b, goroutines, func(hashes coordinator.Hashes) (keys int64) {
					stored, err := c.StorePrompt(b.Context(), api.PromptStore{NumTokens: 16 * benchHashes}, hashes)
					require.NoError(b, err)
					for _, n := range stored {
						keys += n * benchRanks
					}
					return keys
				})
			})
		}
	}
}

// storeChains stores what StorePrompt stores, group rank by group rank, and returns how many keys
// that are.
func storeChains(b *testing.B, s *lookup.Service, hashes coordinator.Hashes) (keys int64) {
	c := s.Coordinator()
	groups, err := c.StoredChunks(nil, 16*benchHashes, 0, coordinator.NoPrompt)
	require.NoError(b, err)
	for g := range groups {
		stride := c.Stride(g)
		for start, end, ok := groups[g].Next(0); ok; start, end, ok = groups[g].Next(end) {
			chain := hashes
			if stride > 1 || end-start < benchHashes {
				var gathered []byte
				for i := start; i < end; i++ {
					gathered = append(gathered, hashes.At(coordinator.KeyIndex(int(i), stride))...)
				}
				chain = coordinator.NewHashes(gathered, 32)
			}
			for rank := range benchRanks {
				at := coordinator.GroupRank{Group: uint16(g), TPRank: uint16(rank)}
				require.NoError(b, s.Store(b.Context(), at, chain))
			}
			keys += (end - start) * benchRanks
		}
	}
	return keys
}

// benchPrompts stores prompts in so many goroutines. store returns the number of keys.
func benchPrompts(b *testing.B, goroutines int, store func(coordinator.Hashes) int64) {
	b.Helper()
	chains := make([][]byte, goroutines)
	for i := range chains {
		chains[i] = lookuptest.Chain(string(rune('a'+i)), benchHashes, 32)
	}
	var group sync.WaitGroup
	var keys atomic.Int64
	b.ResetTimer()
	for i, hashes := range chains {
		n := (b.N + i) / goroutines
		group.Go(func() {
			for round := range n {
				for at := 0; at < len(hashes); at += 32 { // a new chain
					binary.LittleEndian.PutUint64(hashes[at:], uint64(round)<<32|uint64(at)*uint64(2*i+1))
				}
				keys.Add(store(coordinator.NewHashes(hashes, 32)))
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(keys.Load())/b.Elapsed().Seconds()/1e6, "Mkeys/s")
}
