package diagnosis

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/coordinator"
)

func TestMain(m *testing.M) {
	// The network library starts worker pools when the program starts.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// blocks64 is a group with blocks of four hashes.
var blocks64 = coordinator.Group{Kind: coordinator.FullAttention, BlockSize: 64}

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

// keysOfGroups returns the keys of n blocks of each group on rank 0, of one chain.
func keysOfGroups(c *comparer, numbers ...int) (keys []string) {
	for g, n := range numbers {
		for i := range n {
			keys = append(keys, c.rules.KeyPrefix(g, coordinator.Rank{})+fmt.Sprintf("%064x", i))
		}
	}
	return keys
}
