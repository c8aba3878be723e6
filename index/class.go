package index

import "encoding/binary"

// Coverage says which groups and ranks hold the key of an entry. It is immutable
// and shared by all entries of a class: valid, and equal by pointer for equal
// sets, until the index is dropped. A nil *Coverage is that of an absent key.
type Coverage struct {
	// Complete has bit g set when every place that group g requires holds the key.
	Complete uint64
	// Counts[g] is how many of the places that group g requires hold it.
	Counts []uint16

	places []uint64 // bitset of all places that hold the key
}

// class numbers a Coverage; an entry stores its class in two bytes.
type class = uint16

// noClass marks a free slot.
const noClass class = 0

// maxClasses is what two bytes can number besides noClass. A pool whose ranks
// store the same blocks needs one class for each number of ranks that have
// already stored, so a real pool stays far below it.
const maxClasses = 1<<16 - 1

// transition is a step from one class to another: a place added or taken away.
type transition struct {
	from   class
	place  int
	remove bool
}

// classes interns coverage. Readers use coverage only.
type classes struct {
	layout   [][]int          // layout[g] = the places that group g requires
	words    int              // words of a bitset of places
	coverage []*Coverage      // by class; [0] is nil
	byPlaces map[string]class // bitset bytes to class
	steps    map[transition]class
}

func newClasses(places int, layout [][]int) *classes {
	return &classes{
		layout:   layout,
		words:    (places + 63) / 64,
		coverage: []*Coverage{nil},
		byPlaces: map[string]class{},
		steps:    map[transition]class{},
	}
}

// step returns the class reached from one by adding or removing a place; noClass
// when nothing is left. It reports false when a new class is needed and none is
// free. Writers call it; readers are kept out only while a class is made.
func (x *Index) step(from class, place int, remove bool) (class, bool) {
	c := x.classes
	t := transition{from, place, remove}
	if to, ok := c.steps[t]; ok {
		return to, true
	}
	set := make([]uint64, c.words)
	if from != noClass {
		copy(set, c.coverage[from].places)
	}
	if remove {
		set[place/64] &^= 1 << (place % 64)
	} else {
		set[place/64] |= 1 << (place % 64)
	}
	x.mu.Lock()
	to, ok := c.intern(set)
	x.mu.Unlock()
	if ok {
		c.steps[t] = to
	}
	return to, ok
}

// intern returns the class of a set of places.
func (c *classes) intern(set []uint64) (class, bool) {
	key := make([]byte, 0, 8*c.words)
	empty := true
	for _, w := range set {
		key = binary.LittleEndian.AppendUint64(key, w)
		empty = empty && w == 0
	}
	if empty {
		return noClass, true
	}
	if id, ok := c.byPlaces[string(key)]; ok {
		return id, true
	}
	if len(c.coverage) > maxClasses {
		return noClass, false
	}
	id := class(len(c.coverage))
	c.coverage = append(c.coverage, c.describe(set))
	c.byPlaces[string(key)] = id
	return id, true
}

// describe computes what a set of places means to each group.
func (c *classes) describe(set []uint64) *Coverage {
	cov := &Coverage{Counts: make([]uint16, len(c.layout)), places: set}
	for g, required := range c.layout {
		for _, p := range required {
			if set[p/64]>>(p%64)&1 == 1 {
				cov.Counts[g]++
			}
		}
		if int(cov.Counts[g]) == len(required) {
			cov.Complete |= 1 << g
		}
	}
	return cov
}

// bytes estimates the memory of the interned classes and their steps.
func (c *classes) bytes() int64 {
	perClass := int64(16*c.words + 2*len(c.layout) + 120) // bitset, its key, counts, headers and map slots
	const perStep = 64                                    // key, value and map overhead
	return perClass*int64(len(c.coverage)) + perStep*int64(len(c.steps))
}

// holds tells whether a place is in the coverage.
func (c *Coverage) holds(place int) bool {
	return c != nil && c.places[place/64]>>(place%64)&1 == 1
}
