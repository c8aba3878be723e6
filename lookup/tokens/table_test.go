package tokens

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTableAgainstAList compares a table with a list of blocks in the order of their last asks.
func TestTableAgainstAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	table := newTable(64 << 10)
	require.LessOrEqual(t, bytesOf(table.maxEntries), max(64<<10, bytesOf(minEntries)))
	allowed := 1 << 20
	var list []uint64 // the least recent first
	for range 20_000 {
		switch op := rng.IntN(100); {
		case op == 0:
			allowed = rng.IntN(2) << 20
		case op == 1 && table.count() > 0:
			limit := 1 + rng.IntN(table.maxEntries)
			table.resize(limit)
			list = list[max(0, len(list)-limit):]
		default:
			n := 1 + rng.IntN(8)
			table.makeRoom(n, func(bytes int) bool { return bytes <= allowed })
			if table.limit == 0 {
				continue
			}
			list = list[len(list)-table.count():] // what falls out is the least recent
			for range n {
				f := rng.Uint64N(1500) * odd
				e := table.touch(f, 1)
				require.Equal(t, f, e.fingerprint)
				if i := slices.Index(list, f); i >= 0 {
					require.Equal(t, f+1, uint64(e.whole), "what was remembered")
					list = slices.Delete(list, i, i+1)
				}
				e.asked, e.whole = 1, int64(f+1)
				list = append(list, f)
			}
		}
		require.LessOrEqual(t, table.count(), table.limit)
		require.Len(t, list, table.count())
		if len(list) > 0 {
			require.Equal(t, list[0], table.oldest().fingerprint)
		}
		f := rng.Uint64N(1500) * odd
		require.Equal(t, slices.Contains(list, f), table.get(f) != nil)
	}
	require.NotEmpty(t, list)
}

// A share that falls forgets the blocks above it, and one that rises judges the blocks that it adds only when the table
// reaches back to that time.
func TestShareOfTheTable(t *testing.T) {
	table := newTable(1 << 20)
	const top = ^uint64(0)
	at := int64(0)
	touch := func(f uint64) {
		at++
		table.makeRoom(1, func(int) bool { return true })
		table.touch(f, 1).asked = at
	}
	low, high := top/4, top/8*7
	touch(low)
	touch(high)
	table.lower(top / 2)
	require.NotNil(t, table.get(low))
	require.Nil(t, table.get(high))
	require.False(t, table.tracks(high))
	table.raise(top, at)
	require.True(t, table.tracks(high))
	require.False(t, table.judges(high))
	touch(high)
	table.updateJudged()
	require.False(t, table.judges(high), "low is remembered from before")
	for i := range uint64(table.maxEntries) {
		touch(i << 3)
	}
	table.updateJudged()
	require.True(t, table.judges(high))
}
