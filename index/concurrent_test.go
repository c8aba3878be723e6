package index_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
)

// The tests here let lookups, stores, evictions and resets meet, note when each
// began and ended, and ask afterwards whether every answer can be true: each bit
// tells of some moment within its lookup, and none of before a reset that the
// lookup has seen.

const (
	concurrentPlaces = 2
	concurrentLen    = 32
)

// span is the time that an operation took. Its ticks come from one counter, so no
// two are equal; the first is 1.
type span struct{ begin, end int64 }

// change is a store, an eviction or, with no ids, a reset.
type change struct {
	span
	remove bool
	place  int
	ids    []uint16
}

// sighting is a lookup and what it was told.
type sighting struct {
	span
	ending  int64   // when it was about to end
	probed  []int64 // when the probe of each key had returned
	ids     []uint16
	present [][concurrentPlaces]bool
}

// arena is an index with the chains that all meet on.
type arena struct {
	x      *index.Index
	clock  atomic.Int64
	chains [][]uint16
	keys   [][]byte // of chains
	until  time.Time
}

func newArena(t *testing.T, maxEntries int64) *arena {
	x, err := index.New(index.Config{MaxEntries: maxEntries, Places: concurrentPlaces, Groups: [][]int{{0}, {1}, {0, 1}}})
	require.NoError(t, err)
	index.UseDigests(x, true) // also under the race detector
	a := &arena{x: x, until: time.Now().Add(700 * time.Millisecond)}
	if testing.Short() {
		a.until = time.Now().Add(200 * time.Millisecond)
	}
	for i := range uint16(6) {
		ids := make([]uint16, 96)
		for j := range ids {
			ids[j] = i*96 + uint16(j)
			if i%2 == 1 && j < 48 { // forks off the chain before
				ids[j] -= 96
			}
		}
		var keys []byte
		for _, id := range ids {
			keys = appendKey(keys, id, concurrentLen)
		}
		a.chains = append(a.chains, ids)
		a.keys = append(a.keys, keys)
	}
	return a
}

// stretch picks a piece of a chain.
func (a *arena) stretch(rng *rand.Rand) ([]uint16, []byte) {
	c := rng.IntN(len(a.chains))
	from := rng.IntN(2) * rng.IntN(96)
	to := from + 1 + rng.IntN(96-from)
	return a.chains[c][from:to], a.keys[c][from*concurrentLen : to*concurrentLen]
}

// write changes the index for a while, and a few times at least.
func (a *arena) write(t *testing.T, seed uint64) (log []change) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for len(log) < 5000 && (len(log) < 100 || time.Now().Before(a.until)) {
		ids, keys := a.stretch(rng)
		place := rng.IntN(concurrentPlaces)
		switch n := rng.IntN(100); {
		case n < 50:
			var w index.Writer
			for len(ids) > 0 {
				n := 1 + rng.IntN(len(ids))
				c := change{place: place, ids: ids[:n]}
				c.begin = a.clock.Add(1)
				if err := a.x.Store(&w, []int{place}, keys[:n*concurrentLen], concurrentLen); err != nil {
					t.Error(err)
				}
				c.end = a.clock.Add(1)
				log = append(log, c)
				ids, keys = ids[n:], keys[n*concurrentLen:]
			}
		case n < 95:
			c := change{remove: true, place: place, ids: ids}
			c.begin = a.clock.Add(1)
			if _, err := a.x.Evict(place, keys, concurrentLen); err != nil {
				t.Error(err)
			}
			c.end = a.clock.Add(1)
			log = append(log, c)
		case n < 98:
			c := change{remove: true, place: place, ids: slices.Concat(a.chains...)}
			c.begin = a.clock.Add(1)
			if err := a.x.ResetPlaces([]int{place}); err != nil {
				t.Error(err)
			}
			c.end = a.clock.Add(1)
			log = append(log, c)
		default:
			c := change{remove: true}
			c.begin = a.clock.Add(1)
			a.x.Reset()
			c.end = a.clock.Add(1)
			log = append(log, c)
		}
		if rng.IntN(4) == 0 {
			runtime.Gosched()
		}
	}
	return log
}

// read looks up for a while, in pieces of random size, and until something was there.
func (a *arena) read(t *testing.T, seed uint64) (log []sighting) {
	rng := rand.New(rand.NewPCG(seed, 4))
	var c index.Cursor
	runs := make([]index.Run, 8)
	found := false
	for len(log) < 8000 && (!found || time.Now().Before(a.until)) {
		ids, keys := a.stretch(rng)
		s := sighting{ids: ids}
		c.Quiet = rng.IntN(4) == 0
		s.begin = a.clock.Add(1)
		a.x.Begin(&c, concurrentLen)
		for len(keys) > 0 {
			piece := keys[:(1+rng.IntN(len(keys)/concurrentLen))*concurrentLen]
			filled, covered, clean := a.x.Probe(&c, piece, 1, runs, false)
			if !clean {
				clear(s.present)
			}
			if s.take(runs[:filled], a.clock.Add(1)); len(s.present) != len(ids)-len(keys)/concurrentLen+covered {
				t.Error("the runs do not add up to the keys covered")
				return log
			}
			keys = keys[covered*concurrentLen:]
			if rng.IntN(3) == 0 {
				runtime.Gosched()
			}
		}
		s.ending = a.clock.Add(1)
		if !a.x.End(&c) {
			clear(s.present)
		}
		s.end = a.clock.Add(1)
		log = append(log, s)
		found = found || slices.ContainsFunc(s.present, func(held [concurrentPlaces]bool) bool { return held != [concurrentPlaces]bool{} })
		if st := a.x.Stats(); st.MaxEntries > 0 && st.Entries > st.MaxEntries {
			t.Errorf("%d entries, the bound is %d", st.Entries, st.MaxEntries)
		}
	}
	return log
}

// take notes the answer of a probe.
func (s *sighting) take(runs []index.Run, now int64) {
	for _, r := range runs {
		var held [concurrentPlaces]bool
		for p := range held {
			held[p] = r.Coverage != nil && r.Coverage.Complete>>p&1 == 1
		}
		for range r.N {
			s.present = append(s.present, held)
			s.probed = append(s.probed, now)
		}
	}
}

// meet lets all loose and returns what they did.
func (a *arena) meet(t *testing.T) (changes []change, sightings []sighting) {
	const writers, readers = 3, 6
	var written [writers][]change
	var seen [readers][]sighting
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() { written[i] = a.write(t, uint64(i)) })
	}
	for i := range readers {
		wg.Go(func() { seen[i] = a.read(t, uint64(i)) })
	}
	wg.Wait()
	return slices.Concat(written[:]...), slices.Concat(seen[:]...)
}

// spans answers for the stores, or the removals, of one key at one place.
type spans struct {
	byBegin, byEnd       []span
	latestEnd, lastBegin []int64 // greatest among those before, in that order
}

func newSpans(all []span) *spans {
	s := &spans{byBegin: slices.Clone(all), byEnd: slices.Clone(all)}
	slices.SortFunc(s.byBegin, func(a, b span) int { return int(a.begin - b.begin) })
	slices.SortFunc(s.byEnd, func(a, b span) int { return int(a.end - b.end) })
	latestEnd, lastBegin := int64(0), int64(0)
	for i := range all {
		latestEnd, lastBegin = max(latestEnd, s.byBegin[i].end), max(lastBegin, s.byEnd[i].begin)
		s.latestEnd, s.lastBegin = append(s.latestEnd, latestEnd), append(s.lastBegin, lastBegin)
	}
	return s
}

// begunBefore returns the last end of those that began before a tick, else none.
func (s *spans) begunBefore(tick, none int64) int64 {
	i := sort.Search(len(s.byBegin), func(i int) bool { return s.byBegin[i].begin > tick })
	if i == 0 {
		return none
	}
	return s.latestEnd[i-1]
}

// endedBefore returns the last begin of those that had ended before a tick, else
// none.
func (s *spans) endedBefore(tick, none int64) int64 {
	i := sort.Search(len(s.byEnd), func(i int) bool { return s.byEnd[i].end > tick })
	if i == 0 {
		return none
	}
	return s.lastBegin[i-1]
}

// record is what happened to one key at one place.
type record struct{ stores, removals *spans }

// mayBePresent: some store began before the end, and no removal lies between it
// and the beginning.
func (r record) mayBePresent(s span) bool {
	return r.stores.begunBefore(s.end, -2) > r.removals.endedBefore(s.begin, -1)
}

// mayBeAbsent: the same the other way round; at tick 0 all keys are absent.
func (r record) mayBeAbsent(s span) bool {
	return r.removals.begunBefore(s.end, 0) > r.stores.endedBefore(s.begin, -1)
}

// sortOut turns changes into a record for each key and place, and the resets.
func sortOut(changes []change) (records [][concurrentPlaces]record, resets *spans) {
	const ids = 6 * 96
	var stores, removals [ids][concurrentPlaces][]span
	var all []span
	for _, c := range changes {
		if c.ids == nil {
			all = append(all, c.span)
			continue
		}
		for _, id := range c.ids {
			if c.remove {
				removals[id][c.place] = append(removals[id][c.place], c.span)
			} else {
				stores[id][c.place] = append(stores[id][c.place], c.span)
			}
		}
	}
	records = make([][concurrentPlaces]record, ids)
	for id := range ids {
		for p := range concurrentPlaces {
			records[id][p] = record{newSpans(stores[id][p]), newSpans(slices.Concat(removals[id][p], all))}
		}
	}
	return records, newSpans(all)
}

// check tells what cannot be true. Absent keys are passed over where entries also
// make way for others.
func check(t *testing.T, changes []change, sightings []sighting, absentToo bool) {
	records, resets := sortOut(changes)
	answers, present := 0, 0
	for _, s := range sightings {
		for i, id := range s.ids {
			for p, held := range s.present[i] {
				answers++
				switch r := records[id][p]; {
				case !held && absentToo && !r.mayBeAbsent(s.span):
					t.Fatalf("key %d at place %d told absent, present all through %v", id, p, s.span)
				case held && !r.mayBePresent(s.span):
					t.Fatalf("key %d at place %d told present, absent all through %v", id, p, s.span)
				case held && resets.endedBefore(s.ending, -1) > s.probed[i]:
					t.Fatalf("key %d at place %d told present in %v, from before a reset", id, p, s.span)
				case held:
					present++
				}
			}
		}
	}
	t.Logf("%d changes, %d resets, %d lookups with %d answers, %d of them present",
		len(changes), len(resets.byEnd), len(sightings), answers, present)
	require.NotZero(t, present)
	require.Less(t, present, answers)
}

func TestConcurrentHistories(t *testing.T) {
	a := newArena(t, 0)
	changes, sightings := a.meet(t)
	check(t, changes, sightings, true)
	a.settle(t, changes)
}

// TestConcurrentEviction has room for one chain of six.
func TestConcurrentEviction(t *testing.T) {
	changes, sightings := newArena(t, 100).meet(t)
	check(t, changes, sightings, false)
}

// settle looks all keys up when nothing happens any more.
func (a *arena) settle(t *testing.T, changes []change) {
	var last []sighting
	for i, ids := range a.chains {
		var c index.Cursor
		runs := make([]index.Run, len(ids))
		s := sighting{ids: ids, span: span{begin: a.clock.Add(1)}}
		a.x.Begin(&c, concurrentLen)
		filled, _, _ := a.x.Probe(&c, a.keys[i], 1, runs, false)
		s.take(runs[:filled], a.clock.Add(1))
		s.ending = a.clock.Add(1)
		a.x.End(&c)
		s.end = a.clock.Add(1)
		last = append(last, s)
	}
	records, _ := sortOut(changes)
	for _, s := range last {
		for i, id := range s.ids {
			for p, held := range s.present[i] {
				if r := records[id][p]; held && !r.mayBePresent(s.span) || !held && !r.mayBeAbsent(s.span) {
					t.Fatalf("key %d at place %d: %v in the end", id, p, held)
				}
			}
		}
	}
}
