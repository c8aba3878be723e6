package feed

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// oracleTiers are those of the events. Those before numCounted count.
var oracleTiers = []events.Tier{
	{Medium: "GPU"}, {}, {Medium: "CPU"}, {Medium: "GPU", Locality: "LOCAL"}, {Medium: "CPU", Ownership: "x"},
	{Medium: "STORAGE"}, {Medium: "GPU", Locality: "REMOTE"}, {Locality: "REMOTE"},
}

const numCounted = 5

// engineBlock is a block of an engine. Its group is a position in Pool.Groups, or events.NoGroup.
type engineBlock struct {
	group int
	tier  events.Tier
	hash  string
}

// oracle is what an engine holds: a plain set.
type oracle map[engineBlock]bool

func (o oracle) remove(group int, tier events.Tier, hash []byte) {
	same := func(a, b string) bool { return a == "" || b == "" || a == b }
	maps.DeleteFunc(o, func(b engineBlock, _ bool) bool {
		return b.hash == string(hash) && (group == events.NoGroup || b.group == events.NoGroup || b.group == group) &&
			same(b.tier.Medium, tier.Medium) && same(b.tier.Locality, tier.Locality) && same(b.tier.Ownership, tier.Ownership)
	})
}

// holds reports whether a block of the group at a position counts.
func (o oracle) holds(position int, hash []byte) bool {
	for _, tier := range oracleTiers[:numCounted] {
		if o[engineBlock{position, tier, string(hash)}] || position == 0 && o[engineBlock{events.NoGroup, tier, string(hash)}] {
			return true
		}
	}
	return false
}

// family returns prompts of n hash blocks, most of which share a prefix with one before.
func family(rng *rand.Rand, prompts, n, hashLen int) (list []netproto.Hashes) {
	for i := range prompts {
		hashes := lookuptest.Chain(fmt.Sprint(rng.Uint64()), n, hashLen)
		if i > 0 {
			copy(hashes, list[rng.IntN(i)].Bytes()[:rng.IntN(n)*hashLen])
		}
		list = append(list, netproto.NewHashes(hashes, hashLen))
	}
	return list
}

// oraclePools are pools of several groups, some of which are not kept in a store.
func oraclePools() map[string]coordinator.Pool {
	pools := lookuptest.AnchoredPools()
	pools["not all are kept"] = lookuptest.WindowPool
	pools["drafter is not kept"] = coordinator.Pool{VLLM: "0.33.0", HashBlockSize: 16, Groups: []coordinator.Group{
		{BlockSize: 16, EnableKVTransfer: new(bool)}, {BlockSize: 32}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64},
	}}
	return pools
}

// After any events, staleness and clears of an engine of several groups, lookups of its pool answer what its
// rules say of the blocks that the engine holds.
func TestHolderAgainstOracle(t *testing.T) {
	for name, pool := range oraclePools() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				runOracle(t, pool, seed, 1500, index.Config{MaxBytes: 64 << 20})
			}
		})
	}
}

// An index that is too small for the engine answers less, never more.
func TestHolderOfSmallIndexAgainstOracle(t *testing.T) {
	pool := coordinator.Pool{VLLM: "0.33.0", Groups: []coordinator.Group{{BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64}}}
	for seed := range uint64(4) {
		runOracle(t, pool, seed, 1500, index.Config{MaxBytes: 2 << 20, MaxEntries: 256})
	}
}

func runOracle(t *testing.T, pool coordinator.Pool, seed uint64, steps int, memory index.Config) {
	rng := rand.New(rand.NewPCG(seed, 25))
	hashLen := []int{8, 32}[seed%2]
	if pool.HashLen != 0 {
		hashLen = pool.HashLen
	}
	s, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Memory: memory})
	require.NoError(t, err)
	small := memory.MaxEntries != 0
	h, err := New(s, Config{Media: []string{"GPU", "CPU"}})
	require.NoError(t, err)
	c := s.Coordinator()
	groups, hashBlock := c.Pool().Groups, c.Pool().HashBlockSize
	prompts := family(rng, 12, 64, hashLen)
	model, stale := oracle{}, true
	hits := 0
	for step := range steps {
		// An event is of consecutive blocks of a group, of which some are null.
		prompt := prompts[rng.IntN(len(prompts))]
		group := rng.IntN(len(groups)+1) - 1
		if group == events.NoGroup && rng.IntN(4) > 0 {
			group = 0
		}
		stride := groups[max(group, 0)].BlockSize / hashBlock
		first := rng.IntN(prompt.Len()/stride) / (1 + rng.IntN(8))
		end := first + 1 + rng.IntN(prompt.Len()/stride-first)
		if rng.IntN(3) == 0 {
			first, end = 0, prompt.Len()/stride
		}
		var keys []byte
		for i := first; i < end; i++ {
			if i == first || rng.IntN(20) > 0 {
				keys = append(keys, prompt.At((i+1)*stride-1)...)
			}
		}
		b := &events.Blocks{Group: group, Tier: oracleTiers[0], Hashes: netproto.NewHashes(keys, hashLen)}
		if rng.IntN(3) == 0 {
			b.Tier = oracleTiers[rng.IntN(len(oracleTiers))]
		}
		switch rng.IntN(6) {
		case 0: // no parent, or an unknown one
		case 1:
			b.Parent = prompt.At(rng.IntN(prompt.Len()))
		case 2:
			b.Parent = make([]byte, 1+rng.IntN(64))
		default:
			if first > 0 {
				b.Parent = prompt.At(first*stride - 1)
			}
		}
		switch r := rng.IntN(100); {
		case r < 1:
			h.Clear()
			clear(model)
		case r < 6 || step == 0:
			stale = !stale
			h.SetStale(stale)
		case r < 30:
			if rng.IntN(2) == 0 {
				b.Hashes = part(b.Hashes, 0, 1+rng.IntN(min(4, b.Hashes.Len())))
			}
			b.Parent = nil
			require.NoError(t, h.Remove(b))
			for _, hash := range b.Hashes.All() {
				model.remove(b.Group, b.Tier, hash)
			}
		default:
			held := make([]bool, b.Hashes.Len())
			require.NoError(t, h.Store(b, held))
			for i, hash := range b.Hashes.All() {
				at := engineBlock{b.Group, b.Tier, string(hash)}
				require.Equal(t, model[at], held[i])
				model[at] = true
			}
		}
		require.Equal(t, len(model), h.Len())
		for _, asked := range []netproto.Hashes{prompt, prompts[rng.IntN(len(prompts))]} {
			n := rng.IntN(asked.Len()) + 1
			asked = part(asked, 0, n)
			tokens := int64(n * hashBlock)
			tokens -= tokens % int64(s.Alignment())
			want, err := c.LookupBlocks(tokens, asked, func(g int, hash []byte) bool { return !stale && model.holds(c.PoolIndex(g), hash) })
			require.NoError(t, err)
			got, err := s.Lookup(t.Context(), tokens, asked)
			require.NoError(t, err)
			if small {
				if stale {
					require.Zero(t, got.Tokens)
				}
				checkTail(t, c, got, asked, hashBlock, func(g int, hash []byte) bool { return !stale && model.holds(c.PoolIndex(g), hash) })
			} else {
				require.Equal(t, want.Tokens, got.Tokens, "seed %d step %d", seed, step)
				require.True(t, slices.Equal(want.TailBoundaries, got.TailBoundaries), "seed %d step %d", seed, step)
			}
			if got.Tokens > 0 {
				hits++
			}
		}
	}
	require.Greater(t, hits, steps/20, "most lookups find nothing")
	h.Close()
	require.Zero(t, s.Stat().Entries)
}

// checkTail requires that the full-attention blocks of a hit are held.
func checkTail(t *testing.T, c *coordinator.Coordinator, hit coordinator.Hit, asked netproto.Hashes, hashBlock int, holds func(int, []byte) bool) {
	for g := range c.NumGroups() {
		if c.Group(g).Kind != coordinator.FullAttention {
			continue
		}
		for i := range int(hit.Tokens) / hashBlock {
			require.True(t, holds(g, asked.At(i)), "block %d of group %d", i, g)
		}
	}
}
