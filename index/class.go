package index

import (
	"encoding/binary"
	"strings"
)

// Coverage says which groups and ranks hold the key of an entry. It is immutable
// and shared by all entries of a class: equal by pointer for equal sets as long as
// some entry has it, and valid for ever. A nil *Coverage is that of an absent key.
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
	unused   []class // below len(coverage), of no entry any more
	patience int     // batches until the next sweep for want of numbers
	sweepAt  int64   // bytes at which there is a sweep
	swept    int64   // entries that there were at the last
}

func newClasses(places int, layout [][]int) *classes {
	return &classes{
		layout:   layout,
		words:    (places + 63) / 64,
		coverage: []*Coverage{nil},
		byPlaces: map[string]class{},
		steps:    map[transition]class{},
		sweepAt:  classRoom,
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
	key := placesKey(set)
	if strings.Trim(key, "\x00") == "" {
		return noClass, true
	}
	if id, ok := c.byPlaces[key]; ok {
		return id, true
	}
	var id class
	switch n := len(c.unused); {
	case n > 0:
		id = c.unused[n-1]
		c.unused = c.unused[:n-1]
		c.coverage[id] = c.describe(set)
	case len(c.coverage) > maxClasses:
		return noClass, false
	default:
		id = class(len(c.coverage))
		c.coverage = append(c.coverage, c.describe(set))
	}
	c.byPlaces[key] = id
	return id, true
}

// placesKey is a bitset of places as a key of byPlaces.
func placesKey(set []uint64) string {
	key := make([]byte, 0, 8*len(set))
	for _, w := range set {
		key = binary.LittleEndian.AppendUint64(key, w)
	}
	return string(key)
}

// classRoom is how many more bytes classes may take before any are swept away.
const classRoom = 128 << 10

// sweepPatience is how many batches lie between two sweeps at least: one looks at the
// class of every slot.
const sweepPatience = 1024

// sweepClasses forgets the classes that no entry has any more, when hardly enough for a
// batch are left, their memory has grown by a quarter, or half of the entries are gone:
// ranks that store the same chunks in every order pass through as many sets as there
// are. Between batches only: a class that is about to be given is of no entry yet.
// Readers look at the coverage of entries only.
func (x *Index) sweepClasses() {
	c := x.classes
	c.patience--
	few := len(c.unused)+maxClasses+1-len(c.coverage) < batchKeys && c.patience <= 0
	if !few && c.bytes() <= c.sweepAt && 2*x.entries >= c.swept {
		return
	}
	c.patience = sweepPatience
	held := make([]bool, len(c.coverage))
	for i := range x.segments {
		for _, id := range x.segments[i].class {
			held[id] = true
		}
	}
	c.unused, c.byPlaces, c.steps = c.unused[:0], map[string]class{}, map[transition]class{}
	for id := 1; id < len(held); id++ {
		if held[id] {
			c.byPlaces[placesKey(c.coverage[id].places)] = class(id)
			continue
		}
		c.coverage[id] = nil
		c.unused = append(c.unused, class(id))
	}
	c.sweepAt, c.swept = c.bytes()+max(classRoom, c.bytes()/4), x.entries
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
	const perNumber = 8 + 2                               // pointer, and number once it is unused
	return perClass*int64(len(c.byPlaces)) + perNumber*int64(len(c.coverage)) + perStep*int64(len(c.steps))
}

// holds tells whether a place is in the coverage.
func (c *Coverage) holds(place int) bool {
	return c != nil && c.places[place/64]>>(place%64)&1 == 1
}
