package index

// storeBatch is how many keys are stored or evicted under one hold of the lock,
// so that no lookup waits longer than for so many: about a tenth of a
// millisecond.
const storeBatch = 256

// Writer is the state of one store between batches: the chain continues where
// the last batch ended. The zero value begins a new chain; a Writer is used for
// one store.
type Writer struct {
	last    slot
	lastKey [maxHashLen]byte
	hashLen int // of lastKey, 0 when there is none
	full    bool
}

// Store adds keys, consecutive chunks of a chain, to a place. Keys that are there
// already count as used. Where the bounds leave no room, the least recently used
// entries make way; a chain longer than the whole index keeps its beginning.
// keys is only borrowed. Safe for concurrent use with different Writers.
func (x *Index) Store(w *Writer, place int, keys []byte, hashLen int) error {
	if err := x.check(place, keys, hashLen); err != nil {
		return err
	}
	for len(keys) > 0 && !w.full {
		n := min(len(keys), storeBatch*hashLen)
		x.lockTouched()
		err := x.storeBatch(w, place, keys[:n], hashLen)
		x.mu.Unlock()
		if err != nil {
			x.refused.Add(1)
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// check refuses what cannot be stored or evicted.
func (x *Index) check(place int, keys []byte, hashLen int) error {
	switch {
	case hashLen < 1 || hashLen > maxHashLen:
		return ErrHashLen
	case len(keys)%hashLen != 0:
		return ErrCutKey
	case place < 0 || place >= x.places:
		return ErrPlace
	}
	return nil
}

// storeBatch stores a batch under the write lock.
func (x *Index) storeBatch(w *Writer, place int, keys []byte, hashLen int) error {
	last := x.resume(w)
	for ; len(keys) > 0; keys = keys[hashLen:] {
		s, err := x.storeKey(place, keys[:hashLen], last)
		if err != nil {
			return err
		}
		if s == noSlot { // only this chain's own beginning could make way
			w.full = true
			return nil
		}
		last = s
		w.last = s
		w.hashLen = copy(w.lastKey[:], keys[:hashLen])
	}
	return nil
}

// resume returns the slot of the key stored last if that entry is still there.
func (x *Index) resume(w *Writer) slot {
	if w.hashLen == 0 || int(w.last>>segmentBits) >= len(x.segments) {
		return noSlot
	}
	seg, i := x.at(w.last)
	if seg == nil || seg.hashLen != w.hashLen || seg.class[i] == noClass || string(seg.key(i)) != string(w.lastKey[:w.hashLen]) {
		return noSlot
	}
	return w.last
}

// storeKey stores one key behind the key before it and returns its slot, noSlot
// if there is no room for it.
func (x *Index) storeKey(place int, key []byte, last slot) (slot, error) {
	tag, s := x.lookFor(key, last)
	from := noClass
	if s != noSlot {
		seg, i := x.at(s)
		from = seg.class[i]
	}
	to, ok := x.classes.step(from, place, false)
	if !ok {
		return noSlot, ErrClasses
	}
	if s != noSlot {
		if s != last {
			x.unlink(s, s)
			x.linkBehind(s, s, last)
		}
	} else if s = x.room(len(key), last); s == noSlot {
		return noSlot, nil
	} else {
		x.table.insert(tag, s)
		x.linkBehind(s, s, last)
		seg, i := x.at(s)
		copy(seg.key(i), key)
	}
	seg, i := x.at(s)
	seg.class[i] = to
	if to != from {
		x.stored.Add(1)
	}
	return s, nil
}

// lookFor finds a key: where the chain goes on in the log, else through the
// table. The tag is only given for a key that is absent.
func (x *Index) lookFor(key []byte, last slot) (uint32, slot) {
	if last != noSlot {
		if s := x.following(last, len(key)); s != noSlot {
			if seg, i := x.at(s); seg.class[i] != noClass && string(seg.key(i)) == string(key) {
				return 0, s
			}
		}
	}
	tag := x.tag(key)
	return tag, x.find(tag, key)
}

// room returns a free slot for a key of hashLen bytes and evicts for it if need
// be, but never the entry that the new one follows.
func (x *Index) room(hashLen int, last slot) slot {
	for {
		if s := x.takeSlot(hashLen); s != noSlot {
			return s
		}
		victim := x.oldest
		if victim == noSlot || victim == last {
			return noSlot
		}
		seg, _ := x.at(victim)
		atEntryBound := x.maxEntries > 0 && x.entries >= x.maxEntries
		if seg.hashLen == hashLen || atEntryBound {
			x.remove(victim)
			continue
		}
		if last != noSlot && last>>segmentBits == victim>>segmentBits {
			return noSlot
		}
		x.dropSegment(int(victim >> segmentBits))
	}
}

// remove evicts an entry.
func (x *Index) remove(s slot) {
	seg, i := x.at(s)
	x.table.delete(x.tag(seg.key(i)), s)
	x.unlink(s, s)
	x.giveSlot(s)
	x.evicted.Add(1)
	x.removals++
}

// Evict takes keys away from a place; an entry that no place holds any more is
// gone. Keys that are not there are passed over. It returns how many keys were
// there. keys is only borrowed.
func (x *Index) Evict(place int, keys []byte, hashLen int) (int, error) {
	if err := x.check(place, keys, hashLen); err != nil {
		return 0, err
	}
	evicted := 0
	for len(keys) > 0 {
		n := min(len(keys), storeBatch*hashLen)
		x.lockTouched()
		held, err := x.evictBatch(place, keys[:n], hashLen)
		x.mu.Unlock()
		evicted += held
		if err != nil {
			return evicted, err
		}
		keys = keys[n:]
	}
	return evicted, nil
}

// evictBatch evicts a batch under the write lock.
func (x *Index) evictBatch(place int, keys []byte, hashLen int) (evicted int, err error) {
	for ; len(keys) > 0; keys = keys[hashLen:] {
		held, err := x.evictKey(place, keys[:hashLen])
		if err != nil {
			return evicted, err
		}
		if held {
			evicted++
		}
	}
	return evicted, nil
}

// evictKey takes one key away from a place.
func (x *Index) evictKey(place int, key []byte) (bool, error) {
	s := x.find(x.tag(key), key)
	if s == noSlot {
		return false, nil
	}
	seg, i := x.at(s)
	if !x.classes.coverage[seg.class[i]].holds(place) {
		return false, nil
	}
	to, ok := x.classes.step(seg.class[i], place, true)
	if !ok {
		return false, ErrClasses
	}
	if to == noClass {
		x.remove(s)
	} else {
		seg.class[i] = to
		x.removals++
	}
	return true, nil
}
