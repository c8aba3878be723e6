//go:build hitline_holds

package index

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lockHolds returns the records of each lock of an index, those of the slots of mu joined.
func lockHolds(x *Index) map[string]holds {
	all := map[string]holds{"writing": x.writing.holds, "mu": x.mu.holds}
	for i := range x.mu.slots {
		r := &x.mu.slots[i]
		all["mu-read"] = r.read.worse(all["mu-read"])
		all["touch"] = r.touchMu.worse(all["touch"])
	}
	return all
}

// resetHolds begins the records anew.
func resetHolds(x *Index) {
	x.writing.holds = holds{work: x.writing.work}
	x.mu.holds = holds{}
	for i := range x.mu.slots {
		r := &x.mu.slots[i]
		r.read, r.touchMu.holds = holds{}, holds{}
	}
}

// drawnKeys returns n hashes of 32 bytes.
func drawnKeys(seed byte, n int) []byte {
	keys := make([]byte, n*32)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(keys)
	return keys
}

// shuffled returns keys of 32 bytes in random order.
func shuffled(keys []byte) []byte {
	out := make([]byte, 0, len(keys))
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(keys) / 32) {
		out = append(out, cut(keys, i, i+1)...)
	}
	return out
}

// lookUpAll makes one lookup of all keys.
func lookUpAll(x *Index, keys []byte) {
	var c Cursor
	var runs [64]Run
	x.Begin(&c, 32)
	for len(keys) > 0 {
		_, covered, _ := x.Probe(&c, keys, 1, runs[:], false)
		keys = keys[covered*32:]
	}
	x.End(&c)
}

const holdsChain = 8192 // keys of a chain

// eachChain calls do with the chains that keys are.
func eachChain(keys []byte, do func(keys []byte)) {
	for ; len(keys) > 0; keys = keys[min(holdsChain*32, len(keys)):] {
		do(keys[:min(holdsChain*32, len(keys))])
	}
}

// holdScenarios are what an index is asked to do while its holds are recorded. Each
// prepares an index of so many keys and returns what is recorded.
var holdScenarios = []struct {
	name    string
	prepare func(tb testing.TB, n int) (*Index, func())
}{
	// Chains into an empty index: the log and the table grow.
	{"op=grow", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, onePlace(0)), drawnKeys(1, n)
		return x, func() { eachChain(keys, func(c []byte) { storeAt(tb, x, 0, 0, nil, c) }) }
	}},
	// Each key a chain of its own.
	{"op=grow-single", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, onePlace(0)), drawnKeys(1, n)
		return x, func() {
			for i := range n {
				storeAt(tb, x, 0, 0, nil, cut(keys, i, i+1))
			}
		}
	}},
	// Chains into a full index, of which parts were used: entries make way.
	{"op=replace", func(tb testing.TB, n int) (*Index, func()) {
		x, old, keys := mustNew(tb, onePlace(int64(n))), drawnKeys(1, n), drawnKeys(2, n)
		eachChain(old, func(c []byte) { storeAt(tb, x, 0, 0, nil, c) })
		found := shuffled(old)[:n/8*32]
		return x, func() {
			eachChain(keys, func(c []byte) {
				eachChain(found, func(f []byte) { lookUpAll(x, f[:min(len(f), 512*32)]) })
				storeAt(tb, x, 0, 0, nil, c)
			})
		}
	}},
	// What is there in another order: batches lie all over the log, and are moved.
	{"op=rearrange", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, onePlace(0)), drawnKeys(1, n)
		eachChain(keys, func(c []byte) { storeAt(tb, x, 0, 0, nil, c) })
		other := shuffled(keys)
		return x, func() { eachChain(other, func(c []byte) { storeAt(tb, x, 0, 0, nil, c) }) }
	}},
	{"op=evict", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, onePlace(0)), drawnKeys(1, n)
		eachChain(keys, func(c []byte) { storeAt(tb, x, 0, 0, nil, c) })
		other := shuffled(keys)
		return x, func() {
			held, err := x.Evict(0, other, 32)
			require.NoError(tb, err)
			require.Equal(tb, n, held)
		}
	}},
	// Lookups alone, of chains and of scattered keys; they apply what they use.
	{"op=lookup", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, onePlace(0)), drawnKeys(1, n)
		storeAt(tb, x, 0, 0, nil, keys)
		scattered := shuffled(keys)
		return x, func() {
			lookUpAll(x, keys)
			eachChain(scattered, func(c []byte) { lookUpAll(x, c) })
		}
	}},
	// A chain is confirmed, traced and recited.
	{"op=anchors", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, onePlace(0)), drawnKeys(1, n)
		storeAt(tb, x, 0, 0, nil, keys)
		last := cut(keys, n-1, n)
		return x, func() {
			all, _ := x.Confirm(0, nil, keys, 32)
			require.True(tb, all)
			var trail Trail
			down, done := x.Trace(&trail, last, uint32(n-1), 1<<40)
			require.Zero(tb, down)
			require.True(tb, done)
			x.Use(&trail)
			most := min(n, MaxRecital)
			_, ok := x.Recite(&trail, cut(keys, max(n-most-1, 0), max(n-most, 1)), last, uint32(n-1), most)
			require.True(tb, ok)
		}
	}},
	// Ranks store and evict single keys: nearly each makes a class and frees one.
	{"op=classes", func(tb testing.TB, n int) (*Index, func()) {
		const places = 32
		x, keys := mustNew(tb, manyPlaces(0, places)), drawnKeys(1, n)
		eachChain(keys, func(c []byte) { storeAt(tb, x, 0, 0, nil, c) })
		rng := rand.New(rand.NewPCG(1, 2))
		return x, func() {
			for range n {
				i, place := rng.IntN(n), rng.IntN(places)
				var w Writer
				if rng.IntN(2) == 0 {
					_ = x.Store(&w, place, cut(keys, i, i+1), 32) // or ErrClasses
				} else {
					_, _ = x.Evict(place, cut(keys, i, i+1), 32)
				}
			}
		}
	}},
	{"op=reset", func(tb testing.TB, n int) (*Index, func()) {
		x := mustNew(tb, onePlace(0))
		storeAt(tb, x, 0, 0, nil, drawnKeys(1, n))
		return x, x.Reset
	}},
	// The stores behind a reset, which release the memory.
	{"op=release", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, onePlace(0)), drawnKeys(1, n)
		storeAt(tb, x, 0, 0, nil, keys)
		x.Reset()
		return x, func() { storeAt(tb, x, 0, 0, nil, keys[:min(n, holdsChain)*32]) }
	}},
}

// BenchmarkHolds reports, of each lock, how long it was held at most and how much was
// touched under one hold, in the units that holds_off.go names. It logs who held it.
func BenchmarkHolds(b *testing.B) {
	const entries = 1 << 18
	for _, s := range holdScenarios {
		b.Run(s.name, func(b *testing.B) {
			worst := map[string]holds{}
			for b.Loop() {
				x, record := s.prepare(b, entries)
				resetHolds(x)
				record()
				for lock, h := range lockHolds(x) {
					worst[lock] = h.worse(worst[lock])
				}
			}
			b.ReportMetric(0, "ns/op") // most of it is the preparation
			for lock, h := range worst {
				if h.number == 0 {
					continue
				}
				unit := "slots"
				if lock == "writing" {
					unit = "work"
				}
				b.ReportMetric(float64(h.longest)/float64(time.Microsecond), lock+"-max-hold-us")
				b.ReportMetric(float64(h.most), lock+"-max-hold-"+unit)
				b.Logf("%s: held for longest by %s, for most %s by %s", lock, h.slowest, unit, h.busiest)
			}
		})
	}
}

// worse returns a record with the maxima of two, and the sum of their numbers.
func (h *holds) worse(than holds) holds {
	than.number += h.number
	if h.longest > than.longest {
		than.longest, than.slowest = h.longest, h.slowest
	}
	if h.most > than.most {
		than.most, than.busiest = h.most, h.busiest
	}
	return than
}

// Holds whose work is bounded keep to it. How long they take is not judged.
func TestHoldsAreBounded(t *testing.T) {
	for _, s := range holdScenarios {
		x, record := s.prepare(t, 1<<15)
		resetHolds(x)
		record()
		held := lockHolds(x)
		for lock, h := range held {
			t.Logf("%s: %s: %d holds, %v (%s), %d (%s)", s.name, lock, h.number, h.longest, h.slowest, h.most, h.busiest)
		}
		if s.name != "op=anchors" { // a trace counts its links, not their slots
			require.Less(t, held["mu-read"].most, holdWork+2*segmentSlots, "%s: a lookup lets writers in", s.name)
		}
		if s.name == "op=reset" {
			require.Zero(t, held["mu"].most, "readers wait for the exchange only")
		}
		require.LessOrEqual(t, held["touch"].most, touchMost+maxStretches, s.name)
	}
}

// The recording itself: overlapping readers are one hold, and each hold begins at 0.
func TestHoldsAreRecorded(t *testing.T) {
	var g gate
	g.init()
	r := &g.slots[0]
	g.enter(r)
	g.enter(r)
	r.countRead(3)
	g.leave(r)
	r.countRead(4)
	g.leave(r)
	require.Equal(t, 7, r.read.most)
	require.Equal(t, 1, r.read.number)
	for range 2 {
		g.Lock()
		g.count(5)
		g.Unlock()
	}
	require.Equal(t, 5, g.most)
	require.Contains(t, g.busiest, "TestHoldsAreRecorded")

	work := 9
	var m mutex
	m.watch(&work)
	m.Lock()
	work += 2
	m.count(1)
	m.Unlock()
	require.Equal(t, 3, m.most)
	require.Positive(t, m.longest)
	require.True(t, m.TryLock())
	m.Unlock()
	require.Equal(t, 2, m.number)
}
