package index

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A lookup whose keys lie in as many stretches as count as used allocates nothing once the Cursor
// has been used.
func TestScatteredLookupsDoNotAllocate(t *testing.T) {
	skipIfBuildAllocates(t)
	const n = 1 << 12
	x, keys := mustNew(t, onePlace(0)), chain(1, n, 32)
	store(t, x, keys, 32)
	scattered := make([]byte, 0, maxStretches*32)
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(n / 2)[:maxStretches] {
		scattered = append(scattered, keys[i*64:i*64+32]...) // none behind another
	}
	var c Cursor
	var runs [4]Run
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		x.Begin(&c, 32)
		filled, covered, _ := x.Probe(&c, scattered, 1, runs[:], true)
		if filled != 1 || covered != maxStretches || len(c.found) != maxStretches {
			t.Error(filled, covered, len(c.found))
		}
		x.End(&c)
	}))
	require.Equal(t, maxStretches*stretchBytes, c.Held())
}

// A lookup of keys that no index can hold ends, and lets writers in.
func TestProbeWithoutKeys(t *testing.T) {
	for _, isEmpty := range []bool{true, false} {
		x, keys := mustNew(t, onePlace(0)), chain(1, 100, 32)
		if !isEmpty {
			store(t, x, keys, 32)
		}
		for _, c := range []struct{ hashLen, stride, covered int }{
			{0, 1, 0}, {-1, 1, 0}, {math.MinInt, 1, 0}, {32, 0, 0}, {32, -1, 0}, {32, math.MaxInt, 0}, {32, math.MaxInt/32 + 1, 0},
			{65, 1, 49}, {1 << 20, 1, 0}, {math.MaxInt, 1, 0},
		} {
			var cur Cursor
			var runs [4]Run
			x.Begin(&cur, c.hashLen)
			_, covered, _ := x.Probe(&cur, keys, c.stride, runs[:], false)
			require.Equal(t, c.covered, covered, "%+v", c)
			require.Nil(t, runs[0].Coverage)
			x.End(&cur)
		}
		store(t, x, keys, 32)
		leading, _ := probe(x, keys, 32, 100, false)
		require.Equal(t, 100, leading)
	}
}
