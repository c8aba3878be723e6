package index

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkOfLookups compares what lookups of the same number of keys cost.
func TestWorkOfLookups(t *testing.T) {
	const n = 8192
	x := mustNew(t, onePlace(0))
	keys := chain(1, n, 32)
	storeAt(t, x, 0, keys)
	shuffled := make([]byte, 0, len(keys))
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		shuffled = append(shuffled, cut(keys, i, i+1)...)
	}
	for name, c := range map[string]struct {
		keys        []byte
		stride      int
		least, most int // 64 keys asked
	}{
		"a chain":            {keys, 1, workPerGroup, 2 * 64}, // most: no digests
		"every fourth key":   {keys[3*32:], 4, 64, 8 * 64},
		"in any order":       {shuffled, 1, 64 * workPerBatch, 64 * 2 * workPerBatch},
		"absent":             {chain(2, n, 32), 1, 64 * workPerBatch, 64 * 2 * workPerBatch},
		"of another length":  {make([]byte, n*16), 1, 0, 0},
		"one over and again": {bytes.Repeat(keys[:32], n), 1, 64 * workPerBatch, 64 * 4 * workPerKey},
	} {
		t.Run(name, func(t *testing.T) {
			hashLen := 32
			if c.most == 0 {
				hashLen = 16
			}
			var cur Cursor
			var runs [64]Run
			x.Begin(&cur, hashLen)
			require.Zero(t, cur.Work())
			asked, calls := 0, 0
			for keys := c.keys; len(keys) >= hashLen; calls++ {
				_, covered, _ := x.Probe(&cur, keys, c.stride, runs[:], false)
				asked += covered
				keys = keys[min(covered*c.stride*hashLen, len(keys)):]
			}
			work := cur.Work() - calls*workPerCall
			require.GreaterOrEqual(t, work, asked*c.least/64)
			require.LessOrEqual(t, work, asked*c.most/64+4*workPerCall+workPerKey)
			x.Begin(&cur, hashLen)
			require.Zero(t, cur.Work())
		})
	}
}
