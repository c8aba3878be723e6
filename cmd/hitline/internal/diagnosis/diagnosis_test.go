package diagnosis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

func TestMain(m *testing.M) {
	// The network library starts worker pools when the program starts.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// Groups of pools. blocks64 has blocks of four hashes. window32 stores two blocks in front
// of every scheduler block.
var (
	full16   = coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 16}
	blocks32 = coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 32}
	blocks64 = coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 64}
	window32 = coordinator.Group{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32}
	mamba16  = coordinator.Group{Kind: coordinator.Mamba, BlockSize: 16}
	mla16    = coordinator.Group{Kind: coordinator.MLAAttention, BlockSize: 16}
	// At revision 2026-08-17 it makes a pool fine-grained.
	mambaAlign64 = coordinator.Group{Kind: coordinator.Mamba, BlockSize: 64, MambaCacheMode: "align"}
)

// promptLen is the number of hashes of the prompts below.
const promptLen = 40

// poolOf returns a pool of the model m with these groups.
func poolOf(groups ...coordinator.Group) coordinator.Pool {
	return coordinator.Pool{ModelName: "m", Groups: groups}
}

// comparerOf returns a comparer of a pool over a Redis with the default layout.
func comparerOf(t *testing.T, pool coordinator.Pool) *comparer {
	t.Helper()
	rules, err := coordinator.New(pool)
	require.NoError(t, err)
	return newComparer(rules, "keys")
}

// keySet is the set of keys in a fake store.
type keySet map[string]bool

func (s keySet) exists(_ context.Context, keys []string) ([]int, error) {
	answers := make([]int, len(keys))
	for i, key := range keys {
		if s[key] {
			answers[i] = 1
		}
	}
	return answers, nil
}

// store returns a store that has the keys of s and cannot list them.
func (s keySet) store() *Store { return &Store{Backend: "keys", Exists: s.exists} }

// storePrompt adds the blocks of a prompt that an engine stores, except those for which
// evicted returns true.
func (s keySet) storePrompt(t *testing.T, rules *coordinator.Coordinator, chain [][]byte, tokens int64, evicted func() bool) {
	t.Helper()
	aligned := tokens - tokens%int64(rules.Pool().SchedulerBlockSize)
	masks, err := rules.StoreMask(aligned, 0, tokens)
	require.NoError(t, err)
	for g, mask := range masks {
		stride := rules.Stride(g)
		for c := range aligned / int64(rules.Pool().Groups[g].BlockSize) {
			if !mask.IsAll() && !mask.At(c) {
				continue
			}
			for rank := range rules.Ranks(g) {
				if !evicted() {
					s[string(rules.AppendKey(nil, g, rank, chain[int(c)*stride+stride-1]))] = true
				}
			}
		}
	}
}

// never evicts nothing.
func never() bool { return false }

// eventOf returns a lookup, without a hit, of a prompt in blocks of 16 tokens.
func eventOf(chain [][]byte) lookup.LookupEvent {
	blob := slices.Concat(chain...)
	return lookup.LookupEvent{NumTokens: int64(len(chain) * 16), NumHashes: len(chain), Hashes: netproto.NewHashes(blob, 32)}
}

// prefixOf returns the prefix of such a prompt.
func prefixOf(chain [][]byte) promptPrefix {
	event := eventOf(chain)
	return newPromptPrefix(event.NumTokens, event.NumHashes, event.Hashes)
}

// extendChain returns a chain of n random hashes behind the hashes of another.
func extendChain(r *rand.Rand, chain [][]byte, n int) [][]byte {
	chain = slices.Clone(chain)
	for range n {
		hash := make([]byte, 32)
		for i := range hash {
			hash[i] = byte(r.Uint32())
		}
		chain = append(chain, hash)
	}
	return chain
}

// randomChain returns a chain of promptLen hashes, the same in every run.
func randomChain() [][]byte { return extendChain(rand.New(rand.NewPCG(1, 1)), nil, promptLen) }

// keysOfGroups returns the keys of n blocks of each group on rank 0, of one chain.
func keysOfGroups(c *comparer, numbers ...int) (keys []string) {
	for g, n := range numbers {
		for i := range n {
			keys = append(keys, c.rules.KeyPrefix(g, coordinator.Rank{})+fmt.Sprintf("%064x", i))
		}
	}
	return keys
}
