package diagnosis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// randomPool returns a pool with one to four groups of any kind.
func randomPool(r *rand.Rand) coordinator.Pool {
	pool := coordinator.Pool{ModelName: "m", HashBlockSize: 16, TPSize: 1 << r.IntN(3)}
	pool.NumKVHead = 1 << r.IntN(3)
	pool.Revision = []coordinator.Revision{coordinator.Revision20260620, coordinator.Revision20260817}[r.IntN(2)]
	for range 1 + r.IntN(4) {
		g := coordinator.Group{BlockSize: 16 << r.IntN(3), IsEagleGroup: r.IntN(6) == 0}
		g.Kind = []coordinator.Kind{coordinator.FullAttention, coordinator.FullAttention, coordinator.MLAAttention, coordinator.SlidingWindow, coordinator.SlidingWindow, coordinator.Mamba}[r.IntN(6)]
		if g.Kind == coordinator.SlidingWindow {
			g.SlidingWindow = 2 + r.IntN(64)
		}
		if g.Kind == coordinator.Mamba && r.IntN(4) == 0 {
			g.MambaCacheMode = "align"
		}
		pool.Groups = append(pool.Groups, g)
	}
	pool.SchedulerBlockSize = 64 << r.IntN(2)
	return pool
}

// TestOrderOfRandomPools stores prompts as engines of random pools do. A pool in its own
// order has no problem, whatever was evicted and whatever the retention interval. A pool
// in an order with other stored blocks always has one.
func TestOrderOfRandomPools(t *testing.T) {
	swaps, retained, fine := 0, 0, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		pool := randomPool(r)
		c := comparerOf(t, pool)
		engine := c.rules
		switch interval, kept := r.IntN(4)*pool.SchedulerBlockSize, pool; r.IntN(4) {
		case 0, 1: // of the engine, which the pool need not describe
			kept.RetentionInterval = &interval
			engine = comparerOf(t, kept).rules
			retained++
		case 2: // of the pool, perhaps one that no engine accepts
			interval += 16 * r.IntN(2)
			pool.RetentionInterval = &interval
			c = comparerOf(t, pool)
			engine = c.rules
			retained++
		}
		if c.rules.FineGrained() {
			fine++
		}
		keys := keySet{}
		shared := extendChain(r, nil, 16+r.IntN(32))
		var last [][]byte
		for range 3 {
			last = extendChain(r, shared[:r.IntN(len(shared))], 40)
			evicted := r.IntN(3) * r.IntN(50) // percent
			tokens := int64(16*len(last) - r.IntN(200))
			if r.IntN(4) == 0 { // the shortest of which anything is stored
				tokens = int64(pool.SchedulerBlockSize)
			}
			keys.storePrompt(t, engine, last, tokens, func() bool { return r.IntN(100) < evicted })
		}
		about := fmt.Sprintf("seed %d: %+v", seed, pool)
		var f Findings
		_, err := c.comparePrompt(t.Context(), keys.store(), prefixOf(last), false, &f)
		require.NoError(t, err)
		require.Empty(t, f.Problems, about)

		// In another order, over a prompt that is fully stored.
		full := keySet{}
		pool.RetentionInterval = nil
		c = comparerOf(t, pool)
		full.storePrompt(t, c.rules, last, int64(16*len(last)), never)
		i, j := r.IntN(len(pool.Groups)), r.IntN(len(pool.Groups))
		if c.storedAlike(i, j) {
			continue
		}
		other := pool
		other.Groups = slices.Clone(pool.Groups)
		other.Groups[i], other.Groups[j] = other.Groups[j], other.Groups[i]
		f = Findings{}
		_, err = comparerOf(t, other).comparePrompt(t.Context(), full.store(), prefixOf(last), false, &f)
		require.NoError(t, err)
		require.Len(t, f.Problems, 1, about)
		require.Contains(t, f.Problems[0], "give pool.groups the order of the engine's kv_cache_groups", about)
		swaps++
	}
	assert.Greater(t, swaps, 500)
	assert.Greater(t, retained, 500)
	assert.Greater(t, fine, 50)
}

func TestFormatMoved(t *testing.T) {
	for _, test := range []struct {
		groups []coordinator.Group
		fits   string // as in TestMatchDescriptions
		want   string
	}{
		{
			[]coordinator.Group{full16, blocks64}, ".x x.",
			"group 0 has the blocks of a full_attention group of block_size 64 and is described as full_attention of block_size 16, group 1 the other way round",
		},
		{
			[]coordinator.Group{full16, mamba16, window32}, ".x. ..x x..",
			"group 0 has the blocks of a mamba group and is described as full_attention, group 1 has the blocks of a sliding_window group and is described as mamba, group 2 has the blocks of a full_attention group and is described as sliding_window",
		},
	} {
		c := comparerOf(t, poolOf(test.groups...))
		var f Findings
		assert.True(t, c.compareOrder(evidence{
			hasBlocks: func(int) bool { return true },
			fits:      fitsOf(test.fits),
		}, &f))
		assert.Equal(t, []string{test.want + ": give pool.groups the order of the engine's kv_cache_groups"}, f.Problems)
	}
	// Every description fits a group without blocks.
	c := comparerOf(t, poolOf(full16, blocks64))
	var f Findings
	assert.False(t, c.compareOrder(evidence{
		hasBlocks: func(g int) bool { return g == 0 },
		fits:      func(g, description int) bool { return g == 1 || description == 1 },
	}, &f))
	assert.Empty(t, f.Problems)
}
