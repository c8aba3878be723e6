package index

import (
	"runtime"
	"slices"
)

// placesReset is a call of ResetPlaces under way.
type placesReset struct {
	places  []uint64 // bitset of those to remove
	list    []int    // the same, ascending
	epoch   uint64   // of the index when it began
	at, end slot     // the next slot, and the end of the log when it began
	left    int      // words to read under this hold of writing
}

const (
	// resetWords is how many words of bitsets of places a hold of writing reads that finds nothing
	// to change: 20 microseconds.
	resetWords = 32 << 10
	// wordsPerRun is how many words take as long as looking at a run of slots of one class.
	wordsPerRun = 16
	// wordsPerPlace is how many words take as long as removing a place from a class.
	wordsPerPlace = 8
)

// ResetPlaces removes places from all entries, as Evict of every key from each of them would. It
// takes the lock of writers for some 20 microseconds at a time, in which it changes at most a
// group of slots, and lets others in between. Meanwhile stores move no entries. An entry that no
// place holds any more is gone, also if it would need a class and none can be had, as with Evict.
// What is stored to the places meanwhile may go or stay. It fails with ErrPlace. places is only
// borrowed.
func (x *Index) ResetPlaces(places []int) error {
	r, err := x.beginReset(places)
	if err != nil {
		return err
	}
	for done := false; !done; {
		x.writing.Lock()
		done = x.resetSome(r)
		x.writing.Unlock()
		runtime.Gosched() // a store may wait for the lock
	}
	return nil
}

// beginReset begins to remove places. The caller calls resetSome until that is done.
func (x *Index) beginReset(places []int) (*placesReset, error) {
	r := &placesReset{places: make([]uint64, x.layout.words), list: slices.Compact(slices.Sorted(slices.Values(places)))}
	for _, p := range places {
		if p < 0 || p >= x.places {
			return nil, ErrPlace
		}
		r.places[p/64] |= 1 << (p % 64)
	}
	x.writing.Lock()
	defer x.writing.Unlock()
	r.epoch, r.end = x.epoch.Load(), slot(len(x.segments))<<segmentBits
	x.resetting++
	return r, nil
}

// resetSome is one hold of writing: it passes groups of slots that have none of the places, and
// changes the first one that has. It reports whether all is done: nothing is left to do if the
// index was reset since.
func (x *Index) resetSome(r *placesReset) (done bool) {
	r.left = resetWords
	for r.at < r.end && x.epoch.Load() == r.epoch {
		if r.left <= 0 {
			return false
		}
		seg, i := x.at(r.at)
		n := groupSlots - i%groupSlots
		if x.anyHolds(r, seg, i, n) {
			x.resetGroup(r, n)
			return false
		}
		r.at += slot(n)
	}
	x.resetting--
	return true
}

// anyHolds reports whether one of n entries from offset i on is held by one of the places.
func (x *Index) anyHolds(r *placesReset, seg *segment, i, n int) bool {
	for end := i + n; i < end; {
		r.left -= wordsPerRun + len(r.places)
		id := seg.classOf(i)
		if id == noClass {
			i += runStrided(seg.class[i:], 1, end-i)
			continue
		}
		for w, held := range x.coverage[id].places {
			if held&r.places[w] != 0 {
				return true
			}
		}
		i += seg.classRun(i, end-i)
	}
	return false
}

// resetGroup removes the places from the next n entries, which are in one group of slots. It ends
// early if they have many classes of many places.
func (x *Index) resetGroup(r *placesReset, n int) {
	x.classes.freeIdle()
	seg, i := x.at(r.at)
	var to [groupSlots]class
	var gone []slot
	known, kept := noClass, noClass // the last class of an entry, and it without the places
	for j := range n {
		from := seg.class[i+j]
		if to[j] = from; from == noClass {
			continue
		}
		if from != known {
			known = from
			kept, _ = x.nextClass(from, r.list, true) // noClass if no class can be had
			r.left -= wordsPerRun + wordsPerPlace*len(r.list)
		}
		if kept != noClass {
			to[j] = kept
		} else {
			gone = append(gone, r.at+slot(j))
		}
		if r.left <= 0 {
			n = j + 1
			break
		}
	}
	x.setClasses(seg, i, to[:n])
	r.at += slot(n)
	x.evictSlots(gone)
}

// setClasses gives the entries from offset i on, of one group of slots, their new classes.
func (x *Index) setClasses(seg *segment, i int, to []class) {
	if slices.Equal(seg.class[i:i+len(to)], to) {
		return
	}
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
