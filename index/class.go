package index

import "math/bits"

// Coverage says which groups and ranks hold the key of an entry. It is immutable and
// valid for ever. Entries that have equal sets of places share one Coverage; when no
// entry has it any more, the next that gets the same set may get a new one. A nil
// *Coverage is that of an absent key.
type Coverage struct {
	// Complete has bit g set when every place that group g requires holds the key.
	Complete uint64
	// Counts[g] is how many of the places that group g requires hold it.
	Counts []uint16

	places []uint64 // bitset of all places that hold the key
	held   int      // places in it
	hash   uint64   // of the set: the exclusive or of the hashes of its places
}

// class numbers a Coverage; an entry stores its class in two bytes.
type class = uint16

// noClass marks a free slot.
const noClass class = 0

// maxClasses is what two bytes can number besides noClass. A pool whose ranks
// store the same blocks needs one class for each number of ranks that have
// already stored, so a real pool stays far below it.
const maxClasses = 1<<16 - 1

// Holds reports whether a place of Config.Places holds the key.
func (c *Coverage) Holds(place int) bool { return c.holds(place) }

// holds reports whether a place is in the coverage.
func (c *Coverage) holds(place int) bool {
	return c != nil && c.places[place/64]>>(place%64)&1 == 1
}

// differsBy reports whether a coverage is another one with ascending places, or without them if
// remove is set.
func (c *Coverage) differsBy(places []int, other *Coverage, remove bool) bool {
	for i, w := range c.places {
		want := other.places[i]
		for ; len(places) > 0 && places[0]/64 == i; places = places[1:] {
			if want |= 1 << (places[0] % 64); remove {
				want ^= 1 << (places[0] % 64)
			}
		}
		if w != want {
			return false
		}
	}
	return true
}

// layout is what an index knows of the places of its pool. It never changes.
type layout struct {
	words  int // of a bitset of places
	secret [2]uint64
	sizes  []uint32 // of each group: the number of places it requires
	// Groups requiredBy[firsts[p]:firsts[p+1]] require place p.
	firsts     []uint32
	requiredBy []uint8
	empty      Coverage // of no place
}

func newLayout(places int, groups [][]int, secret [2]uint64) *layout {
	l := &layout{
		words: (places + 63) / 64, secret: secret,
		sizes: make([]uint32, len(groups)), firsts: make([]uint32, places+1),
	}
	for g, required := range groups {
		l.sizes[g] = uint32(len(required))
		for _, p := range required {
			l.firsts[p+1]++
		}
	}
	for p := range places {
		l.firsts[p+1] += l.firsts[p]
	}
	l.requiredBy = make([]uint8, l.firsts[places])
	filled := make([]uint32, places)
	for g, required := range groups {
		for _, p := range required {
			l.requiredBy[l.firsts[p]+filled[p]] = uint8(g)
			filled[p]++
		}
	}
	l.empty = Coverage{Counts: make([]uint16, len(groups)), places: make([]uint64, l.words)}
	for g, size := range l.sizes {
		if size == 0 {
			l.empty.Complete |= 1 << g
		}
	}
	return l
}

// hash hashes a place under the index's secret.
func (l *layout) hash(place int) uint64 {
	p, q := bits.Mul64(uint64(place)+l.secret[0], l.secret[1])
	return p ^ q
}

// change returns a coverage with some places added, or removed if remove is set, without their
// number and hash.
func (l *layout) change(from *Coverage, places []int, remove bool) *Coverage {
	to := &Coverage{
		Counts: append(make([]uint16, 0, len(l.sizes)), from.Counts...),
		places: append(make([]uint64, 0, l.words), from.places...),
	}
	by := uint16(1)
	if remove {
		by = ^uint16(0) // minus one
	}
	for _, place := range places {
		word, bit := &to.places[place/64], uint64(1)<<(place%64)
		if *word&bit != 0 != remove {
			continue
		}
		*word ^= bit
		for _, g := range l.requiredBy[l.firsts[place]:l.firsts[place+1]] {
			to.Counts[g] += by
		}
	}
	for g, size := range l.sizes {
		if uint32(to.Counts[g]) == size {
			to.Complete |= 1 << g
		}
	}
	return to
}
