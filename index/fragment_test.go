package index

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFullLogStaysInOrder stores and uses chains of many lengths for several
// lifetimes of a full index: what is stored then must still lie in long pieces.
func TestFullLogStaysInOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds under the race detector and emulators, and has one goroutine")
	}
	for name, cfg := range map[string]Config{
		"entries": {MaxEntries: 50_000, Places: 1, Groups: [][]int{{0}}},
		"bytes":   {MaxBytes: 6 << 20, Places: 1, Groups: [][]int{{0}}},
	} {
		t.Run(name, func(t *testing.T) {
			x := mustNew(t, cfg)
			rng := rand.New(rand.NewPCG(1, 2))
			var hot [][]byte
			keys, in := 0, 0
			for i := range uint64(1500) {
				c := chain(i, 20+rng.IntN(rng.IntN(2000)+1), 32)
				store(t, x, c, 32)
				if len(hot) < 30 {
					hot = append(hot, c)
				} else if rng.IntN(4) == 0 {
					hot[rng.IntN(len(hot))] = c
				}
				h := hot[rng.IntN(len(hot))]
				probe(x, h[:(1+rng.IntN(len(h)/32))*32], 32, 4096, true)
				if i > 500 {
					keys += len(c) / 32
					in += pieces(x, c, 32)
				}
			}
			checkBooks(t, x)
			require.Greater(t, x.Stats().Evicted, 5*x.Stats().Entries)
			t.Logf("%d keys in %d pieces", keys, in)
			require.Greater(t, keys, 40*in, "keys a piece")
		})
	}
}
