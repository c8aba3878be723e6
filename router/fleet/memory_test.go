package fleet

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
)

// Sets that are gone leave no memory that Stats does not count: the heap stays below MaxBytes whatever was stored before.
func TestHeapIsBounded(t *testing.T) {
	const maxBytes = 8 << 20
	rng := newRand(7)
	before := lookuptest.HeapBytes()
	f, hs := newTestFleet(t, Config{BlockSize: 16, MaxBytes: maxBytes}, 64)
	base := lookuptest.HeapBytes() - before
	check := func(what string) {
		require.LessOrEqual(t, f.Stats().Bytes, int64(maxBytes), what)
		require.LessOrEqual(t, lookuptest.HeapBytes()-before-base, int64(maxBytes), what)
		runtime.KeepAlive(f)
	}
	dropped := func(hs []*Holder) (sum int64) {
		for _, h := range hs {
			n := h.Dropped()
			sum += n
		}
		return sum
	}
	fill := func(hs []*Holder, blocks int) {
		for before := dropped(hs); dropped(hs) < before+20_000; {
			hashes := randomHashes(rng, blocks)
			for range 1 + rng.IntN(8) {
				storeAll(t, hs[rng.IntN(len(hs))], hashes)
			}
		}
	}
	fill(hs, 1)
	check("many sets")
	for _, h := range hs[1:] {
		h.Clear()
	}
	check("a holder is left")
	fill(hs[:1], 1024)
	check("many blocks of one set")
}
