package index

import "github.com/hitline/hitline/simd"

// Run says that the next N keys of a lookup have the same coverage. Coverage is
// nil for keys that are absent.
type Run struct {
	N        int
	Coverage *Coverage
}

// Cursor is the state of one lookup between batches. The zero value is ready for
// Begin; a Cursor is reused for any number of lookups, one at a time.
type Cursor struct {
	// Quiet, set before Begin, leaves the order of eviction as it is: what the
	// lookup finds does not count as used.
	Quiet bool

	hashLen  int
	epoch    uint64
	removals uint64
	next     slot // where the next key is expected, noSlot if unknown
	found    []stretch
}

// keepStretches is how many stretches a Cursor keeps room for between lookups:
// enough for a chain that lies in several pieces, little enough for ten thousand
// idle connections.
const keepStretches = 64

// Begin starts a lookup of keys of hashLen bytes.
func (x *Index) Begin(c *Cursor, hashLen int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c.hashLen, c.next = hashLen, noSlot
	c.epoch, c.removals = x.epoch, x.removals
	c.found = c.found[:0]
}

// Probe reports the presence of consecutive keys of a chain. The first key asked
// is at the front of keys, each further one stride hashes behind the one before;
// it fills runs from the front and returns how many it filled and how many keys
// they cover. It stops when runs is full, when the keys end, or behind the first
// absent key when stopAtAbsent is set; call it again with the rest.
//
// clean is false when the index was reset since Begin: what earlier calls told is
// void, and this one's runs are about the index as it is now. keys is only
// borrowed.
func (x *Index) Probe(c *Cursor, keys []byte, stride int, runs []Run, stopAtAbsent bool) (filled, covered int, clean bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if clean = c.epoch == x.epoch; !clean {
		c.epoch, c.removals, c.next = x.epoch, x.removals, noSlot
		c.found = c.found[:0]
	}
	step := stride * c.hashLen
	for len(keys) >= c.hashLen {
		if filled == len(runs) {
			return filled, covered, clean
		}
		n, cov := x.matchNext(c, keys, step)
		if n == 0 {
			n, cov = x.locate(c, keys, step)
		}
		filled = appendRun(runs, filled, n, cov)
		covered += n
		keys = keys[min(n*step, len(keys)):]
		if cov == nil && stopAtAbsent {
			break
		}
	}
	return filled, covered, clean
}

// appendRun adds n keys to the last run if their coverage is the same, or to a
// new run.
func appendRun(runs []Run, filled, n int, cov *Coverage) int {
	if filled > 0 && runs[filled-1].Coverage == cov {
		runs[filled-1].N += n
		return filled
	}
	runs[filled] = Run{N: n, Coverage: cov}
	return filled + 1
}

// locate finds the front key by its hash. An absent key is a run of one.
func (x *Index) locate(c *Cursor, keys []byte, step int) (int, *Coverage) {
	key := keys[:c.hashLen]
	s := x.find(x.tag(key), key)
	if s == noSlot {
		c.next = noSlot
		return 1, nil
	}
	c.next = s
	return x.matchNext(c, keys, step)
}

// matchNext compares the keys with the records from the expected slot on, run
// against run, and returns how many agree and have the same coverage.
func (x *Index) matchNext(c *Cursor, keys []byte, step int) (int, *Coverage) {
	if c.next == noSlot {
		return 0, nil
	}
	seg, i := x.at(c.next)
	id := seg.class[i]
	if id == noClass {
		return 0, nil
	}
	var n int
	if step == c.hashLen {
		n = simd.EqualPrefix(seg.keys[i*c.hashLen:], keys, c.hashLen)
	} else {
		n = equalStrided(seg.keys[i*c.hashLen:], keys, c.hashLen, step)
	}
	for j, have := range seg.class[i : i+n] {
		if have != id {
			n = j
			break
		}
	}
	if n == 0 {
		return 0, nil
	}
	c.note(c.next, n)
	c.next = x.following(c.next+slot(n-1), c.hashLen)
	return n, x.classes.coverage[id]
}

// equalStrided counts how many leading records equal keys that lie step bytes
// apart.
func equalStrided(records, keys []byte, hashLen, step int) int {
	n := 0
	for len(records) >= hashLen && len(keys) >= hashLen && string(records[:hashLen]) == string(keys[:hashLen]) {
		n++
		records = records[hashLen:]
		keys = keys[min(step, len(keys)):]
	}
	return n
}

// note remembers a stretch of slots that was found.
func (c *Cursor) note(first slot, n int) {
	if c.Quiet {
		return
	}
	if last := len(c.found) - 1; last >= 0 && c.found[last].first+slot(c.found[last].n) == first {
		c.found[last].n += uint32(n)
		return
	}
	c.found = append(c.found, stretch{first, uint32(n)})
}

// End finishes a lookup: what it found counts as used. It returns false when the
// index was reset since Begin, and stable tells whether no entry has gone or lost
// a place since then.
func (x *Index) End(c *Cursor) (clean, stable bool) {
	x.mu.RLock()
	clean, stable = c.epoch == x.epoch, c.removals == x.removals
	x.mu.RUnlock()
	if clean {
		x.noteTouches(c.found, c.epoch)
	}
	c.Drop()
	return clean, stable
}

// Drop abandons a lookup, as when its connection is cut. Nothing counts as used.
func (c *Cursor) Drop() {
	if cap(c.found) > keepStretches {
		c.found = nil
	}
	c.found = c.found[:0]
	c.next = noSlot
}
