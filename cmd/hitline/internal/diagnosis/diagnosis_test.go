package diagnosis

import (
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
