package index

// segmentSlots is the number of records in a segment. Growth allocates one
// segment (170 KiB at 32-byte keys), small enough to zero within a bounded batch,
// and a run is compared within one, so it should be much longer than a chain's
// usual stretch.
const (
	segmentBits  = 12
	segmentSlots = 1 << segmentBits
	segmentMask  = segmentSlots - 1
)

// slot numbers a record: its segment in the high bits, its place there in the
// low ones.
type slot uint32

// noSlot is no record at all: the end of a list, an unknown position.
const noSlot = ^slot(0)

// segment is a stretch of the log: fixed-width records beside what the index
// keeps for each. Keys of consecutive slots lie one after the other, so a stored
// chain is compared as one array.
type segment struct {
	hashLen int
	keys    []byte  // segmentSlots records of hashLen bytes
	class   []class // noClass: the slot is free
	newer   []slot  // neighbour in the recency list; also links the free list
	older   []slot
	live    int // slots in use
}

func newSegment(hashLen int) *segment {
	return &segment{
		hashLen: hashLen,
		keys:    make([]byte, segmentSlots*hashLen),
		class:   make([]class, segmentSlots),
		newer:   make([]slot, segmentSlots),
		older:   make([]slot, segmentSlots),
	}
}

// slotBytes is what a slot takes beside its key: class and two links.
const slotBytes = 2 + 4 + 4

// segmentBytes is the size of a segment for keys of hashLen bytes.
func segmentBytes(hashLen int) int64 { return segmentSlots * int64(hashLen+slotBytes) }

// key returns the record at offset i.
func (s *segment) key(i int) []byte {
	return s.keys[i*s.hashLen : (i+1)*s.hashLen]
}

// at splits a slot into its segment and the offset there.
func (x *Index) at(s slot) (*segment, int) {
	return x.segments[s>>segmentBits], int(s & segmentMask)
}

// following returns the slot behind s when it may hold the next key of the same
// chain: it exists and has records of the same length.
func (x *Index) following(s slot, hashLen int) slot {
	s++
	id := int(s >> segmentBits)
	if id >= len(x.segments) || x.segments[id] == nil || x.segments[id].hashLen != hashLen {
		return noSlot
	}
	return s
}

// takeSlot returns a free slot for a key of hashLen bytes, noSlot if the bounds
// leave none.
func (x *Index) takeSlot(hashLen int) slot {
	if x.maxEntries > 0 && x.entries >= x.maxEntries {
		return noSlot
	}
	if x.free[hashLen] == noSlot && !x.grow(hashLen) {
		return noSlot
	}
	s := x.free[hashLen]
	seg, i := x.at(s)
	x.free[hashLen] = seg.newer[i]
	seg.live++
	x.entries++
	return s
}

// grow adds a segment if the byte bound allows it and the table that its slots
// may need.
func (x *Index) grow(hashLen int) bool {
	size := segmentBytes(hashLen)
	slots := x.slots + segmentSlots
	if x.segmentTotal+size+max(x.table.bytes(), worstTable(slots))+fixedBytes > x.maxBytes {
		return false
	}
	id := len(x.segments)
	if n := len(x.vacant); n > 0 {
		id = x.vacant[n-1]
		x.vacant = x.vacant[:n-1]
	} else {
		x.segments = append(x.segments, nil)
	}
	seg := newSegment(hashLen)
	x.segments[id] = seg
	x.segmentTotal += size
	x.slots = slots
	first := slot(id) << segmentBits
	for i := range segmentSlots - 1 { // ascending, so that chains lie in order
		seg.newer[i] = first + slot(i) + 1
	}
	seg.newer[segmentSlots-1] = x.free[hashLen]
	x.free[hashLen] = first
	return true
}

// giveSlot returns a slot whose entry is gone to the free list.
func (x *Index) giveSlot(s slot) {
	seg, i := x.at(s)
	seg.class[i] = noClass
	seg.live--
	seg.newer[i], seg.older[i] = x.free[seg.hashLen], noSlot // touchTail relies on the latter
	x.free[seg.hashLen] = s
	x.entries--
}

// dropSegment evicts every entry of a segment and releases it: how memory moves
// from keys of one length to keys of another. A pool has one hash length, so
// this is rare.
func (x *Index) dropSegment(id int) {
	seg := x.segments[id]
	first := slot(id) << segmentBits
	for i := range segmentSlots {
		if seg.class[i] != noClass {
			x.remove(first + slot(i))
		}
	}
	x.unlinkFree(id, seg.hashLen)
	x.segments[id] = nil
	x.vacant = append(x.vacant, id)
	x.segmentTotal -= segmentBytes(seg.hashLen)
	x.slots -= segmentSlots
}

// unlinkFree takes the slots of a segment, all of them free, out of the free
// list.
func (x *Index) unlinkFree(id, hashLen int) {
	kept := noSlot
	var last *slot
	for s := x.free[hashLen]; s != noSlot; {
		seg, i := x.at(s)
		next := seg.newer[i]
		if int(s>>segmentBits) != id {
			if last == nil {
				kept = s
			} else {
				*last = s
			}
			last = &seg.newer[i]
		}
		s = next
	}
	if last != nil {
		*last = noSlot
	}
	x.free[hashLen] = kept
}
