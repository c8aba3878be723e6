package lookup

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A table is a map, wherever the search begins.
func TestFoundTable(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	block := func() (b groupBlock) {
		b.group, b.hashLen = groupKeys{byte(random.IntN(2))}, uint8(31+random.IntN(2))
		binary.LittleEndian.PutUint16(b.hash[random.IntN(2)*15:], uint16(random.IntN(700)))
		return b
	}
	table, model := newBlockTable(94*chunkBlocks), map[groupBlock]int64{}
	bytes := table.bytes()
	reserve := func(n int64) bool { bytes += n; return true }
	require.Equal(t, -1, (*blockTable)(nil).find(&groupBlock{}, 0))
	for range 20_000 {
		b, next, written := block(), random.IntN(2000)-10, random.Int64N(100)
		i := table.find(&b, next)
		latest, ok := model[b]
		require.Equal(t, ok, i >= 0)
		if ok {
			require.Equal(t, latest, table.at(i).written)
		}
		if random.IntN(4) == 0 {
			model[b] = max(latest, written)
			require.Equal(t, b, table.at(table.put(&b, next, written, reserve)).groupBlock)
		}
		require.Equal(t, len(model), table.len())
		require.Equal(t, table.bytes(), bytes)
	}
	require.Greater(t, table.len(), 2000)
}

// A table takes no more blocks than it was made for, and none for which there is no memory.
func TestFoundTableIsBounded(t *testing.T) {
	table, free := newBlockTable(2*chunkBlocks), int64(chunkBytes)
	put := func(i int) int {
		b := groupBlock{hash: [maxRememberedHashLen]byte{byte(i), byte(i >> 8)}}
		return table.put(&b, i, 1, func(n int64) bool { free -= n; return free >= 0 })
	}
	for i := range chunkBlocks {
		require.Equal(t, i, put(i))
	}
	require.Equal(t, -1, put(chunkBlocks))
	free = 1 << 20
	for i := range chunkBlocks {
		require.Equal(t, chunkBlocks+i, put(chunkBlocks+i))
	}
	require.Equal(t, -1, put(2*chunkBlocks))
	require.Equal(t, 5, put(5), "it is there already")
	require.Equal(t, 2*chunkBlocks, table.len())
}
