package capacity

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowHits is Belady's choice and LRU written down plainly, over stamps.
func slowHits(requests [][]uint32, capacity int, stamp func(request, position int, node uint32) int) (hits int64) {
	held := map[uint32]int{}
	for r, nodes := range requests {
		hits += int64(leadingIn(nodes, func(n uint32) bool { _, ok := held[n]; return ok }))
		for i, n := range nodes {
			held[n] = stamp(r, i, n)
		}
		for len(held) > capacity {
			var worst uint32
			for n, s := range held {
				if old, ok := held[worst]; !ok || s < old {
					worst = n
				}
			}
			delete(held, worst)
		}
	}
	return hits
}

func TestPoliciesAgainstPlainOnes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		requests := make([][]uint32, 40)
		for i := range requests { // paths in a tree whose nodes are numbered as in a heap
			node := uint32(1)
			for range 1 + rng.IntN(5) {
				requests[i] = append(requests[i], node)
				node = 2*node + uint32(rng.IntN(2))
			}
		}
		capacity := 5 + rng.IntN(20)
		soonest := func(r, i int, node uint32) int {
			for later := r + 1; later < len(requests); later++ {
				if j := slices.Index(requests[later], node); j >= 0 {
					return -(later*10 + j)
				}
			}
			return -1000 - i
		}
		require.Equal(t, slowHits(requests, capacity, soonest), beladyHits(requests, capacity))
		recent := func(r, i int, _ uint32) int { return r*10 - i }
		require.Equal(t, slowHits(requests, capacity, recent), lruHits(requests, capacity, true))
		require.GreaterOrEqual(t, beladyHits(requests, capacity), lruHits(requests, capacity, false))
	}
}

func TestLRUExamples(t *testing.T) {
	requests := [][]uint32{{1, 2, 3}, {4}, {1, 2, 3}}
	assert.EqualValues(t, 0, lruHits(requests, 3, false), "the head goes first, and nothing hits without it")
	assert.EqualValues(t, 2, lruHits(requests, 3, true))
	assert.EqualValues(t, 3, beladyHits(requests, 3))
	assert.EqualValues(t, 1, lruHits([][]uint32{{1, 2, 3}, {1, 2, 3}}, 1, true), "the beginning of a long chain stays")
	assert.EqualValues(t, 0, lruHits([][]uint32{{1, 2, 3}, {1, 2, 3}}, 1, false))
}
