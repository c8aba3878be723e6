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
	block := func() (b foundBlock) {
		b.group, b.hashLen = foundGroup{byte(random.IntN(2))}, uint8(31+random.IntN(2))
		binary.LittleEndian.PutUint16(b.hash[random.IntN(2)*15:], uint16(random.IntN(700)))
		return b
	}
	table, model := new(foundTable), map[foundBlock]int64{}
	require.Equal(t, -1, (*foundTable)(nil).find(&foundBlock{}, 0))
	for range 20_000 {
		b, next, written := block(), random.IntN(2000)-10, random.Int64N(100)
		i := table.find(&b, next)
		latest, ok := model[b]
		require.Equal(t, ok, i >= 0)
		if ok {
			require.Equal(t, latest, table.written[i])
		}
		if random.IntN(4) == 0 {
			model[b] = max(latest, written)
			require.Equal(t, b, table.blocks[table.put(&b, next, written)])
		}
		require.Equal(t, len(model), table.len())
	}
}
