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
)

func TestMain(m *testing.M) {
	// The network library starts worker pools when the program starts.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// Groups of pools. blocks64 has blocks of four hashes.
var (
	full16   = coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 16}
	blocks64 = coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 64}
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
	return newComparer(rules)
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

// eventOf returns a lookup, without a hit, of a prompt in blocks of 16 tokens.
func eventOf(chain [][]byte) lookup.LookupEvent {
	blob := slices.Concat(chain...)
	return lookup.LookupEvent{NumTokens: int64(len(chain) * 16), Hashes: coordinator.NewHashes(blob, 32)}
}

// randomChain returns a chain of promptLen hashes, the same in every run.
func randomChain() (chain [][]byte) {
	r := rand.New(rand.NewPCG(1, 1))
	for range promptLen {
		hash := make([]byte, 32)
		for i := range hash {
			hash[i] = byte(r.Uint32())
		}
		chain = append(chain, hash)
	}
	return chain
}

// keysOfGroups returns the keys of n blocks of each group on rank 0, of one chain.
func keysOfGroups(c *comparer, numbers ...int) (keys []string) {
	for g, n := range numbers {
		for i := range n {
			keys = append(keys, c.rules.KeyPrefix(g, coordinator.Rank{})+fmt.Sprintf("%064x", i))
		}
	}
	return keys
}
