//go:build hitline_holds

package index

import (
	"context"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lockHolds returns the records of each lock of an index, those of the stripes of mu joined.
func lockHolds(x *Index) map[string]holds {
	all := map[string]holds{"writing": x.writing.holds, "mu": x.mu.holds}
	for i := range x.mu.stripes {
		r := &x.mu.stripes[i]
		all["mu-read"] = r.read.worse(all["mu-read"])
		all["touch"] = r.touchMu.worse(all["touch"])
	}
	return all
}

// resetHolds begins the records anew.
func resetHolds(x *Index) {
	x.writing.holds = holds{work: x.writing.work}
	x.mu.holds = holds{}
	for i := range x.mu.stripes {
		r := &x.mu.stripes[i]
		r.read, r.touchMu.holds = holds{}, holds{}
	}
}

// shuffled returns keys of 32 bytes in random order.
func shuffled(keys []byte) []byte {
	out := make([]byte, 0, len(keys))
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(keys) / 32) {
		out = append(out, cut(keys, i, i+1)...)
	}
	return out
}

// oneKeyRuns stores n other keys and then the first keys of a chain, one in 32 of as many,
// last ones first: each is a run of its own, with a head. All are confirmed.
func oneKeyRuns(tb testing.TB, n int) (x *Index, keys []byte) {
	x = mustNew(tb, onePlace(0))
	storeAt(tb, x, 0, 0, nil, drawnKeys(2, n))
	return x, chainInPieces(tb, x, n/32, 1)
}

// lookUp makes one lookup of the first key and of every stride-th behind it.
func lookUp(x *Index, keys []byte, stride int) {
	var c Cursor
	var runs [64]Run
	x.Begin(&c, 32)
	for len(keys) > 0 {
		_, covered, _ := x.Probe(&c, keys, stride, runs[:], false)
		keys = keys[min(covered*stride*32, len(keys)):]
	}
	x.End(&c)
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
	// Many chains grow in turn, key by key, until the index is full.
	{"op=grow-in-turn", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, onePlace(int64(n/2))), drawnKeys(1, n)
		chains := 2 * maxPreallocations
		return x, func() {
			for i := range n {
				var w Writer
				w.Number(uint32(i / chains))
				if i >= chains {
					w.Behind(cut(keys, i-chains, i-chains+1))
				}
				require.NoError(tb, x.Store(&w, []int{0}, cut(keys, i, i+1), 32))
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
				eachChain(found, func(f []byte) { lookUp(x, f[:min(len(f), 512*32)], 1) })
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
			lookUp(x, keys, 1)
			eachChain(scattered, func(c []byte) { lookUp(x, c, 1) })
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
	// A chain of which each key is a run of its own is confirmed again, traced and recited.
	{"op=anchors-in-pieces", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := oneKeyRuns(tb, n)
		n = len(keys) / 32
		last := cut(keys, n-1, n)
		return x, func() {
			all, _ := x.Confirm(0, nil, keys, 32)
			require.True(tb, all)
			var trail Trail
			require.Zero(tb, traceAll(x, &trail, last, uint32(n-1)))
			most := min(n, MaxRecital)
			_, ok := x.Recite(&trail, cut(keys, max(n-most-1, 0), max(n-most, 1)), last, uint32(n-1), most)
			require.True(tb, ok)
		}
	}},
	// A chain of which another place has every second key is traced and looked up.
	{"op=mixed", func(tb testing.TB, n int) (*Index, func()) {
		n = min(n, 2*segmentSlots)
		x, keys := mustNew(tb, manyPlaces(0, 2)), drawnKeys(1, n)
		storeAt(tb, x, 0, 0, nil, keys)
		var w Writer
		for i := 0; i < n; i += 2 {
			require.NoError(tb, x.Store(&w, []int{1}, cut(keys, i, i+1), 32))
		}
		all, _ := x.Confirm(0, nil, keys, 32)
		require.True(tb, all)
		return x, func() {
			var trail Trail
			require.Zero(tb, traceAll(x, &trail, cut(keys, n-1, n), uint32(n-1)))
			require.Len(tb, trail.Runs, n)
			lookUp(x, keys, 1)
			lookUp(x, keys, 2)
			lookUp(x, keys, 32)
		}
	}},
	// Scattered keys are looked up and each is asked for again; then, over and again, every
	// second key of segments whose other keys are gone, and the scattered ones.
	{"op=found", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, onePlace(0)), drawnKeys(1, n)
		storeAt(tb, x, 0, 0, nil, keys)
		var odd []byte
		for i := 0; i < n; i += 2 {
			odd = append(odd, cut(keys, i, i+1)...)
		}
		other := shuffled(odd)[:1024*32]
		evict(tb, x, 0, odd[len(odd)/2:], 32)
		return x, func() {
			c := Cursor{Remember: true}
			var runs [64]Run
			x.Begin(&c, 32)
			for keys := other; len(keys) > 0; {
				_, covered, _ := x.Probe(&c, keys, 1, runs[:], false)
				keys = keys[covered*32:]
			}
			for i := range 1024 {
				x.Found(&c, cut(other, i, i+1))
			}
			x.End(&c)
			for range 10 {
				lookUp(x, keys[n/2*32+32:], 2)
			}
			for range 40 { // until a lookup helps to apply what waits
				lookUp(x, other, 1)
			}
			storeAt(tb, x, 0, 0, nil, drawnKeys(3, 64))
			x.Stats()
		}
	}},
	// An index whose memory has no room for a span a key: every second key is evicted, then
	// keys are stored one by one.
	{"op=few-spans", func(tb testing.TB, n int) (*Index, func()) {
		x := mustNew(tb, Config{MaxBytes: 4 << 20, Places: 1, Groups: [][]int{{0}}})
		keys, single := drawnKeys(1, 1<<18), drawnKeys(2, min(n, 1<<16))
		stored := 0
		for ; !x.evicting; stored += 1024 {
			storeAt(tb, x, 0, 0, nil, cut(keys, stored, stored+1024))
		}
		return x, func() {
			for i := 0; i < stored; i += 2 {
				evict(tb, x, 0, cut(keys, i, i+1), 32)
			}
			for i := range len(single) / 32 {
				storeAt(tb, x, 0, 7, cut(keys, 0, 1), cut(single, i, i+1))
			}
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
					_ = x.Store(&w, []int{place}, cut(keys, i, i+1), 32) // or ErrClasses
				} else {
					_, _ = x.Evict(place, cut(keys, i, i+1), 32)
				}
			}
		}
	}},
	// A chain that three places hold, of which one and then two are reset: all entries get
	// another class, and go. Another reset is given up.
	{"op=reset-places", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, manyPlaces(0, 3)), drawnKeys(1, n)
		for p := range 3 {
			storeAt(tb, x, p, 0, nil, keys)
		}
		return x, func() {
			require.NoError(tb, x.ResetPlaces([]int{0}))
			require.NoError(tb, x.ResetPlaces([]int{1, 2}))
			require.Zero(tb, x.entries)
			var r PlacesReset
			require.NoError(tb, x.BeginResetPlaces(&r, []int{0}))
			r.End()
		}
	}},
	// The same of every second key, where spans are few.
	{"op=reset-places-few-spans", func(tb testing.TB, _ int) (*Index, func()) {
		x, keys := fewSpansIndex(tb)
		for i := 0; i < len(keys)/32; i += 2 {
			_ = x.Store(&Writer{}, []int{1}, cut(keys, i, i+1), 32)
			_, _ = x.Evict(0, cut(keys, i, i+1), 32)
		}
		return x, func() {
			require.NoError(tb, x.ResetPlaces([]int{1}))
			require.NoError(tb, x.ResetPlaces([]int{0}))
			require.Zero(tb, x.entries)
		}
	}},
	// A dump of chains, of keys that are each a run with a head, and what is removed meanwhile.
	{"op=dump", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := oneKeyRuns(tb, n)
		return x, func() {
			first := true
			require.NoError(tb, x.Dump(context.Background(), DumpOptions{}, func(*DumpRecord) error {
				if first {
					evict(tb, x, 0, cut(keys, 0, len(keys)/64), 32)
					require.NoError(tb, x.ResetPlaces([]int{0}))
				}
				first = false
				return nil
			}))
		}
	}},
	// A dump behind lookups whose stretches have not been applied.
	{"op=dump-found", func(tb testing.TB, n int) (*Index, func()) {
		x, keys := mustNew(tb, onePlace(0)), drawnKeys(1, n)
		storeAt(tb, x, 0, 0, nil, keys)
		for range 4 {
			lookUp(x, shuffled(keys)[:1024*32], 1)
		}
		return x, func() { dumpRecords(tb, x) }
	}},
	// A dump is loaded into an index that has no room for all.
	{"op=load", func(tb testing.TB, n int) (*Index, func()) {
		x := mustNew(tb, onePlace(0))
		keys := drawnKeys(1, n)
		storeAt(tb, x, 0, 0, nil, keys)
		records := dumpRecords(tb, x)
		records = append(records, DumpRecord{Kind: DumpEvict, Places: []int{0}, Keys: cut(keys, 0, 1000), HashLen: 32},
			DumpRecord{Kind: DumpResetPlaces, Places: []int{0}})
		y := mustNew(tb, onePlace(int64(n*3/4)))
		return y, func() {
			l := y.NewLoader()
			for i := range records {
				require.NoError(tb, l.Load(&records[i]))
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
				if lock == "writing" || lock == "mu-read" {
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
	by := maps.Clone(than.by)
	for who, most := range h.by {
		if by == nil {
			by = map[string]int{}
		}
		by[who] = max(by[who], most)
	}
	than.by = by
	return than
}

// Bounds of what one hold does, whatever the index holds. Each is the sum of what its parts
// do at most; what grows with the index is told beside it.
const (
	// mostRelink is dropping the link of a key, with a new head of the one behind it, and
	// setting another one: each step rewrites a list of 64 heads at most.
	mostRelink = 2*3*64 + 2*64
	// mostReserve makes classes, spans and room free for a batch.
	mostReserve = (keepIdle+4*batchKeys)*workPerClass + (looksPerBatch+looksPerKey*batchKeys+joinWindow)*workPerSpan
	// mostRefs rewrites a segment's list of spans.
	mostRefs = segmentSlots / refsPerWork
	// mostCut takes a key out of its span or enters it into one.
	mostCut = 3 * (workPerSpan + mostRefs)
	// mostTouches applies n touches, of which the last may be one of touchBatch spans.
	mostTouches = 2 * touchBatch * (workPerSpan + 1)
	mostEvicted = 3*batchKeys*workPerEvicted + smallSpan*workPerEvicted
	mostStored  = workPerCall + batchKeys*(workPerStored+workPerClass+4*mostCut) + workPerSegment
	// mostReclaim looks at all that is preallocated.
	mostReclaim = maxPreallocations*(workPerReclaim+mostPrealloc/2) + mostJoining*workPerPrealloc
	mostRelease = 2 * workPerRelease
	// mostStoring is a batch of a store.
	mostStoring = mostReserve + touchStore*(workPerSpan+1) + mostTouches + mostEvicted + mostStored + mostReclaim + mostSplits + mostRelease
	// mostDumped copies a group of spans. It has as many spans as a hold may look at, and either at most
	// MaxDumpKeys entries or one span; each entry may be a run with a head.
	mostDumped = segmentSlots * (workPerDumped + workPerRun + workPerLink)
	// mostPiece is the run behind which a reader looks at its work.
	mostPiece = segmentSlots + segmentSlots/8 + workPerLink + workPerKey
)

// holdBounds has, by lock and by the function that releases it, the most that may be counted
// under one hold.
var holdBounds = map[string]map[string]int{
	"mu": {
		"publish":     batchKeys * (1 + groupSlots + mostRelink),
		"takeAway":    batchKeys * (1 + mostRelink/2),
		"remove":      batchKeys + mostRelink,
		"setClasses":  2 * groupSlots,
		"confirmRun":  segmentSlots/64 + 1,
		"Before":      1 + mostRelink,
		"fillHole":    1 + mostRelink,
		"split":       64,
		"grow":        0,
		"growClasses": 0,
		"clear":       0,
		"useHashLen":  0,
	},
	"mu-read": {
		"Probe":       holdWork + max(mostPiece, workPerCall+workPerKey+scatteredKeys*workPerBatch),
		"Recite":      holdWork + mostPiece,
		"confirmSome": holdWork + mostPiece,
		"follow":      holdWork + mostPiece,
		"Trace":       holdWork + mostPiece,
		"ResumeTrace": holdWork + mostPiece,
		"Found":       workPerCall + workPerKey + maxStretches,
	},
	"writing": {
		"Store":        mostStoring,
		"Evict":        mostReserve + batchKeys*(workPerStored+workPerClass+mostCut),
		"confirmSome":  holdWork + mostPiece,
		"queueTouches": touchBatch*(workPerSpan+1) + mostTouches,
		"Before":       workPerLink,
		"Stats":        0,
		"Reset":        0,
		"Step": mostReserve + 2*workPerCall + workPerGroup + resetWork +
			groupSlots*(2*workPerScan+2+workPerClass+workPerSetClass+workPerEvicted+mostCut),
		"BeginResetPlaces": 0,
		"End":              0,
		"dumpTouches":      touchBatch*(workPerSpan+1) + mostTouches,
		"beginDump":        0,
		"dumpSome":         workPerCall + dumpWork + workPerSpan + mostDumped,
		"endDump":          0,
		"hold":             mostStoring,
	},
	"touch": {
		"queueTouches": maxStretches + touchMost,
		"takeTouches":  0,
		"bytes":        0,
		"Reset":        0,
	},
}

// copies is what one hold of writing copies at most, as it grows with the index: of the lists
// of segments and classes and of the directory, when they double, and of slabs.
func copies(x *Index) int {
	return len(x.segments) + len(x.coverage) + len(x.table.directory) + len(x.slabs) + len(x.table.slabs)
}

// Each kind of hold keeps to its bound. How long it takes is not judged.
func TestHoldsAreBounded(t *testing.T) {
	met := map[string]bool{}
	for _, s := range holdScenarios {
		x, record := s.prepare(t, 1<<15)
		resetHolds(x)
		grown := copies(x)
		record()
		grown = max(grown, copies(x))
		for lock, h := range lockHolds(x) {
			for by, most := range h.by {
				t.Logf("%s: %s: %d by %s", s.name, lock, most, by)
				who := by[strings.LastIndexByte(by, '.')+1:]
				met[lock+" "+who] = true
				bound, ok := holdBounds[lock][who]
				require.True(t, ok, "%s: %s is held by %s, which has no bound", s.name, lock, who)
				if lock == "writing" {
					bound += grown
				}
				require.LessOrEqual(t, most, bound, "%s: %s, held by %s", s.name, lock, who)
			}
		}
		if s.name == "op=anchors-in-pieces" {
			require.Zero(t, x.writing.by["index.(*Index).confirmSome"], "what is sure is confirmed by readers")
		}
	}
	for lock, bounds := range holdBounds {
		for who := range bounds {
			if !met[lock+" "+who] {
				t.Errorf("no scenario has %s held by %s", lock, who)
			}
		}
	}
}

// The recording itself: overlapping readers are one hold, and each hold begins at 0.
func TestHoldsAreRecorded(t *testing.T) {
	var g gate
	g.init()
	r := &g.stripes[0]
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
