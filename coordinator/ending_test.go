package coordinator

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/oracle"
)

// What a hit leaves is told by an ending: the hit of exactly the first n hashes is that of their bits, what was found is what
// every full-attention group holds, and the block that ends the hit is one that its group lacks.
func TestEnding(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	groupsEnd := 0
	for range 20_000 {
		slow := oracle.RandomPool(random)
		c := ofOracle(t, slow)
		n := oracle.RandomChainLen(random, &slow)
		tokens := int64(n*c.pool.HashBlockSize + random.IntN(2*c.pool.HashBlockSize))
		tokens -= tokens % c.align
		start := int64(random.IntN(3)*c.pool.SchedulerBlockSize) * int64(random.IntN(2))
		if start > tokens || int(start)/c.pool.HashBlockSize > n || n == 0 {
			continue
		}
		held := random.IntN(n + 1)
		prefix := presenceFrom(c, 0, n, func(i, _ int) bool { return i < held })
		var s Scratch
		want, err := c.Answer(prefix, tokens, &s)
		if err == nil {
			require.Equal(t, want.Tokens, c.PrefixHit(tokens, n, held, &s), "%+v: %d tokens, %d of %d hashes", c.pool, tokens, held, n)
		}

		lost := random.IntN(4)
		p := presenceFrom(c, start, n-int(start)/c.pool.HashBlockSize, func(int, int) bool { return random.IntN(4) >= lost })
		hit, err := c.Answer(p, tokens, &s)
		if err != nil {
			continue
		}
		e := c.Ending(p, hit, tokens, &s)
		require.GreaterOrEqual(t, e.Found, int(min(max(hit.Tokens, start)/int64(c.pool.HashBlockSize), int64(n))))
		require.LessOrEqual(t, e.Found, n)
		if e.Group < 0 {
			continue
		}
		groupsEnd++
		require.False(t, c.groups[e.Group].Kind.IsFull())
		position := e.Hash / c.KeyStride(e.Group)
		has := p.Bits[e.Group]
		at := position - c.FirstPosition(e.Group, start)
		require.GreaterOrEqual(t, at, 0)
		require.Zero(t, has[at/64]>>(at%64)&1, "the group holds the block that it is said to lack")
	}
	require.Greater(t, groupsEnd, 500)
}
