package index

import (
	"math/bits"
	"slices"

	"github.com/hitline/hitline/simd"
)

// PlacesReset removes places from all entries, as Evict of every key from each of them would,
// step by step. BeginResetPlaces begins it. It belongs to one goroutine at a time.
type PlacesReset struct {
	index   *Index   // nil if none is under way
	places  []uint64 // bitset of those to remove
	rest    []uint64 // bitset of those that a class keeps
	epoch   uint64   // of the index when it began
	at, end slot     // the next slot, and the end of the log when it began
	work    int
}

const (
	// resetWork is the work of a hold of writing that has found nothing to change: 20
	// microseconds.
	resetWork = 8 << 10
	// workPerScan is looking at a run of slots of one class.
	workPerScan = 4
	// workPerSetClass is giving an entry that stays another class.
	workPerSetClass = 2
)

// ResetPlaces removes all that the places hold; see BeginResetPlaces.
func (x *Index) ResetPlaces(places []int) error {
	var r PlacesReset
	if err := x.BeginResetPlaces(&r, places); err != nil {
		return err
	}
	for !r.Step(resetWork) {
		continue
	}
	return nil
}

// BeginResetPlaces begins to remove all that the places hold. Step goes on with it; the caller
// must call Step until it is done, or End. Meanwhile stores move no entries. An entry that no
// place holds any more is gone, also if it would need a class and none can be had, as with Evict.
// What is stored to the places before it is done may go or stay. It fails with ErrPlace. places
// is only borrowed. Safe for concurrent use with different PlacesResets.
func (x *Index) BeginResetPlaces(r *PlacesReset, places []int) error {
	*r = PlacesReset{places: make([]uint64, x.layout.words), rest: make([]uint64, x.layout.words)}
	for _, p := range places {
		if p < 0 || p >= x.places {
			return ErrPlace
		}
		r.places[p/64] |= 1 << (p % 64)
	}
	x.writing.Lock()
	defer x.writing.Unlock()
	r.index, r.epoch, r.end = x, x.epoch.Load(), slot(len(x.segments))<<segmentBits
	x.resetting = append(x.resetting, r)
	return nil
}

// Step goes on until about as much work is done, in units of 2 to 3 nanoseconds, and reports
// whether all is done. Lookups and other changes go on between its holds.
func (r *PlacesReset) Step(work int) (done bool) {
	for x := r.index; r.index != nil && work > 0; {
		x.writing.Lock()
		x.resetSome(r)
		worked := x.work
		x.writing.Unlock()
		r.work += worked
		work -= worked
	}
	return r.index == nil
}

// Work is what Step has cost so far, in units of 2 to 3 nanoseconds.
func (r *PlacesReset) Work() int { return r.work }

// End gives up what is not done yet. It does nothing if all is done, or nothing was begun.
func (r *PlacesReset) End() {
	if x := r.index; x != nil {
		x.writing.Lock()
		x.endReset(r)
		x.writing.Unlock()
	}
}

func (x *Index) endReset(r *PlacesReset) {
	at := slices.Index(x.resetting, r)
	x.resetting = slices.Delete(x.resetting, at, at+1)
	x.resets.Add(1)
	if x.dump != nil {
		x.dump.addResetPlaces(r.places)
	}
	r.index = nil
}

// resetSome is one hold of writing: it passes groups of slots that have none of the places, and
// changes the first one that has. If the index was reset since, nothing is left to do.
func (x *Index) resetSome(r *PlacesReset) {
	x.work = workPerCall
	for r.at < r.end && x.epoch.Load() == r.epoch {
		if x.work >= resetWork {
			return
		}
		seg, i := x.at(r.at)
		n := groupSlots - i%groupSlots
		if x.anyHolds(seg, i, n, r.places) {
			x.resetGroup(r, n)
			return
		}
		r.at += slot(n)
	}
	x.endReset(r)
}

// anyHolds tells whether one of n entries from offset i on is held by one of the places.
func (x *Index) anyHolds(seg *segment, i, n int, places []uint64) bool {
	for end := i + n; i < end; {
		x.work += workPerScan + len(places)/4
		id := seg.classOf(i)
		if id == noClass {
			i += simd.RunLength16(seg.class[i:end])
			continue
		}
		for w, held := range x.coverage[id].places {
			if held&places[w] != 0 {
				return true
			}
		}
		i += seg.classRun(i, end-i)
	}
	return false
}

// resetGroup removes the places from the next n entries, which are in one group of slots. It ends
// early if they have many classes of many places.
func (x *Index) resetGroup(r *PlacesReset, n int) {
	x.work += x.classes.freeIdle() * workPerClass
	seg, i := x.at(r.at)
	var to [groupSlots]class
	var gone []slot
	known, kept := noClass, noClass // the class that without was last asked for, and its answer
	for j := range n {
		from := seg.class[i+j]
		if to[j] = from; from == noClass {
			continue
		}
		if from != known {
			known, kept = from, x.without(r, from)
		}
		if kept != noClass {
			to[j] = kept
		} else {
			gone = append(gone, r.at+slot(j))
		}
		if x.work >= resetWork {
			n = j + 1
			break
		}
	}
	x.setClasses(seg, i, to[:n])
	r.at += slot(n)
	x.evictSlots(gone)
}

// without returns the class of the places that a class has and r does not remove. It returns
// noClass if there are none, or if it needs a new class and none can be had.
func (x *Index) without(r *PlacesReset, from class) class {
	c := x.classes
	have := c.coverage[from]
	held, hash := have.held, have.hash
	for w, places := range have.places {
		r.rest[w] = places &^ r.places[w]
		for removed := places & r.places[w]; removed != 0; removed &= removed - 1 {
			held--
			hash ^= c.layout.hash(w*64 + bits.TrailingZeros64(removed))
		}
	}
	x.work += workPerScan + len(r.rest)/4 + 2*(have.held-held)
	switch held {
	case have.held:
		return from
	case 0:
		return noClass
	}
	for id := c.byHash[hash]; id != noClass; id = c.use[id].next {
		if slices.Equal(c.coverage[id].places, r.rest) {
			return id
		}
	}
	if !c.fit(1) {
		return noClass
	}
	to := c.layout.reduce(have, r.rest)
	to.held, to.hash = held, hash
	return x.addClass(to)
}

// reduce returns a coverage with fewer places, without their number and hash.
func (l *layout) reduce(from *Coverage, places []uint64) *Coverage {
	to := &Coverage{Complete: from.Complete, Counts: slices.Clone(from.Counts), places: slices.Clone(places)}
	for w, had := range from.places {
		for removed := had &^ places[w]; removed != 0; removed &= removed - 1 {
			p := w*64 + bits.TrailingZeros64(removed)
			for _, g := range l.requiredBy[l.firsts[p]:l.firsts[p+1]] {
				to.Counts[g]--
				to.Complete &^= 1 << g
			}
		}
	}
	return to
}

// setClasses gives the entries from offset i on, of one group of slots, their new classes.
func (x *Index) setClasses(seg *segment, i int, to []class) {
	if slices.Equal(seg.class[i:i+len(to)], to) {
		return
	}
	x.work += workPerCall + workPerGroup + len(to)*workPerSetClass
	x.mu.Lock()
	defer x.mu.Unlock()
	group := &seg.groupClass[i/groupSlots]
	same := *group != noClass && len(to) == groupSlots
	for j, id := range to {
		x.setClass(seg, i+j, id)
	}
	if same {
		*group = to[0] // all had one class, and so have one again; the digest of the keys stays
	} else {
		x.summarizeGroup(seg, i)
	}
}
