package fleet

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/parts"
	"github.com/hitline/hitline/internal/partstest"
	"github.com/hitline/hitline/router/events"
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
			n, _ := h.Report()
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

// The list of the sets is bounded by MaxBytes, too, if they are all equal.
func TestLoadOfEqualSets(t *testing.T) {
	const sets = 1 << 20
	snapshot := partstest.Write(func(w *parts.Writer) {
		w.Uvarint(1) // holders
		w.Text("engine")
		w.Int(0)
		w.Uvarint(0) // groups
		w.Uvarint(1) // groups and tiers
		(&events.GroupTier{Tier: events.Tier{Medium: "GPU"}}).Write(w)
		w.Uvarint(sets)
		for range sets {
			w.Uvarint(1)
			w.Uvarint(0)
			w.Uvarint(0)
			w.Fixed64(1)
		}
	})
	f, _ := newTestFleet(t, Config{BlockSize: 16, MaxBytes: 1 << 20}, 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.ErrorIs(t, f.Load(partstest.Reader(snapshot)), ErrFull)
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.TotalAlloc-before.TotalAlloc), int64(4<<20))
	f, _ = newTestFleet(t, Config{BlockSize: 16}, 0)
	require.NoError(t, f.Load(partstest.Reader(snapshot)))
}
