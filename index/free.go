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

// emptiest returns one of the segments that have the most free slots.
func (l *freeSegments) emptiest() int { return int(l.first[bits.Len64(l.some)]) }

// relist puts a segment into the list that its free slots ask for.
func (x *Index) relist(id int) {
	seg := x.segments[id].segmentMeta
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
	seg.used.setRange(i, n, true)
	x.addFree(first, -n)
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
	x.openIn(x.freeSegments.emptiest(), 0)
}

// openIn opens the first free stretch of a segment at or behind offset i, if there is
// one.
func (x *Index) openIn(id, i int) bool {
	used := &x.segments[id].used
	from := used.firstAbsent(i)
	if from == segmentSlots {
		return false
	}
	first := slot(id) << segmentBits
	x.open = opening{first + slot(from), first + slot(used.firstPresent(from))}
	return true
}

// freeSlots makes a stretch of slots within one segment free; readers know already.
func (x *Index) freeSlots(first slot, n int) {
	seg, i := x.at(first)
	seg.used.setRange(i, n, false)
	x.addFree(first, n)
}

// addFree counts that slots of the segment of s have become free.
func (x *Index) addFree(s slot, n int) {
	id := int(s >> segmentBits)
	x.segments[id].free += n
	x.free += int64(n)
	x.relist(id)
}
