package index

import "math/bits"

// freeSegments lists the segments that have free slots, by how many they have: list l
// has those of 64(l-1)+1 to 64l free slots. So the search for one of many free slots
// does not depend on the size of the log.
type freeSegments struct {
	first [freeLevels + 1]int32 // segment number, of no meaning for an empty list
	some  uint64                // bit l-1: list l is not empty
}

const freeLevels = segmentSlots / 64

// relist puts a segment into the list that its free slots ask for.
func (x *Index) relist(id int) {
	seg := x.segments[id].books
	level := (seg.free + 63) / 64
	if level == seg.level {
		return
	}
	l := &x.freeSegments
	if seg.level > 0 {
		before, behind := seg.near[0], seg.near[1]
		if before >= 0 {
			x.segments[before].near[1] = behind
		} else if l.first[seg.level] = behind; behind < 0 {
			l.some &^= 1 << (seg.level - 1)
		}
		if behind >= 0 {
			x.segments[behind].near[0] = before
		}
	}
	if seg.level = level; level == 0 {
		return
	}
	seg.near = [2]int32{-1, -1}
	if l.some>>(level-1)&1 == 1 {
		seg.near[1] = l.first[level]
		x.segments[l.first[level]].near[0] = int32(id)
	}
	l.first[level] = int32(id)
	l.some |= 1 << (level - 1)
}

// opening is a stretch of free slots that new records are put into.
type opening struct{ at, end slot }

// take takes at most n free slots that follow each other, at least one; the caller knows that
// there are as many. Slots are handed out upwards, so that chains lie in order.
func (x *Index) take(n int) (first slot, taken int) {
	o := &x.open
	if o.at == o.end {
		x.openNext()
	}
	first, n = o.at, min(n, int(o.end-o.at))
	o.at += slot(n)
	seg, i := x.at(first)
	for end := i + n; i < end; {
		in := min(64-i%64, end-i) // one word
		seg.used[i/64] |= ^uint64(0) >> (64 - in) << (i % 64)
		i += in
	}
	seg.free -= n
	x.free -= int64(n)
	x.relist(int(first >> segmentBits))
	return first, n
}

// openNext finds the next free stretch: further up in the segment at hand, or else in
// one of the segments that have the most free slots.
func (x *Index) openNext() {
	if o := x.open; o.end > 0 {
		id := int((o.end - 1) >> segmentBits)
		if x.openIn(id, int(o.end-slot(id)<<segmentBits)) {
			return
		}
	}
	x.openIn(int(x.freeSegments.first[bits.Len64(x.freeSegments.some)]), 0)
}

// openIn opens the first free stretch of a segment at or behind offset i, if there is
// one.
func (x *Index) openIn(id, i int) bool {
	from, to := x.segments[id].freeFrom(i)
	if from == to {
		return false
	}
	first := slot(id) << segmentBits
	x.open = opening{first + slot(from), first + slot(to)}
	return true
}

// freeFrom returns the first stretch of free slots at or behind offset i, an
// empty one if there is none.
func (s *books) freeFrom(i int) (from, to int) {
	for ; i < segmentSlots; i = i&^63 + 64 {
		if w := ^s.used[i/64] >> (i % 64); w != 0 {
			i += bits.TrailingZeros64(w)
			break
		}
	}
	for to = i; to < segmentSlots; {
		w := s.used[to/64] >> (to % 64)
		if w != 0 {
			return i, to + bits.TrailingZeros64(w)
		}
		to = to&^63 + 64
	}
	return min(i, segmentSlots), segmentSlots
}

// freeSlots makes a stretch of slots within one segment free; readers know already.
func (x *Index) freeSlots(first slot, n int) {
	seg, i := x.at(first)
	for j := i; j < i+n; j++ {
		seg.used[j/64] &^= 1 << (j % 64)
	}
	seg.free += n
	x.free += int64(n)
	x.relist(int(first >> segmentBits))
}
