package index

import (
	"container/heap"
	"math"
)

// When entries were used last is known by row: rowSlots consecutive slots of a segment have one time of use,
// that of the entry used last, and are evicted together. Times are numbers of Index.clock: a store has one, and
// so has each stretch that a lookup has found.
//
// A segment keeps a lower bound of the times of its rows, and a heap orders the segments by it. So the oldest
// row is found in the first segment, once its bound has been brought up to date.

const (
	rowSlots    = 8
	segmentRows = segmentSlots / rowSlots
	rowsPerWord = 64 / rowSlots // of a slotSet
	// maxLooks bounds the segments that a search for the oldest row looks at once it has found one to evict.
	maxLooks = 8
)

// heapBytes is what a segment takes in useHeap: a pointer, in a list that has doubled.
const heapBytes = 2 * 8

// useHeap has the segment with the lowest bound first.
type useHeap []*segmentMeta

func (h useHeap) Len() int           { return len(h) }
func (h useHeap) Less(i, j int) bool { return h[i].bound < h[j].bound }
func (h useHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = int32(i), int32(j)
}

func (h *useHeap) Push(b any) {
	s := b.(*segmentMeta)
	s.heapAt = int32(len(*h))
	*h = append(*h, s)
}

// Pop is of heap.Interface. Segments stay until a reset.
func (h *useHeap) Pop() any { panic("index: a segment was taken from the heap") }

// nextUse returns the time of a use that begins now.
func (x *Index) nextUse() uint64 {
	x.clock++
	return x.clock
}

// markUsed sets the time of use of the rows of a stretch, within one segment, unless theirs is later.
func (x *Index) markUsed(first slot, n int, time uint64) {
	seg, i := x.at(first)
	rows := seg.lastUse[i/rowSlots : (i+n-1)/rowSlots+1]
	x.work += 1 + len(rows)/rowsPerWork
	for r := range rows {
		rows[r] = max(rows[r], time)
	}
	if time < seg.bound {
		seg.bound = time
		heap.Fix(&x.byUse, int(seg.heapAt))
	}
}

// oldestRow returns the first slot of the row that was used least recently, if that was before the given time,
// and noSlot otherwise. If lookups have used many segments since the last search, it may be one of the oldest.
func (x *Index) oldestRow(before uint64) (found slot) {
	found, oldest := noSlot, before
	for looks := 0; looks < maxLooks || found == noSlot; looks++ {
		if len(x.byUse) == 0 || x.byUse[0].bound >= oldest {
			break
		}
		s := x.byUse[0]
		x.work += workPerLook
		row, time := s.leastRecentRow()
		if time < oldest {
			found, oldest = slot(s.number)<<segmentBits+slot(row*rowSlots), time
		}
		s.bound = time
		heap.Fix(&x.byUse, 0)
	}
	return found
}

// leastRecentRow returns the row of a segment that was used least recently, and when. Of those used at one time it
// returns the last, so that the end of a chain goes before its beginning. The time of a segment without
// entries is later than any.
func (b *segmentMeta) leastRecentRow() (row int, time uint64) {
	time = math.MaxUint64
	for word, used := range b.used.words {
		if used == 0 {
			continue
		}
		for r, t := range b.lastUse[word*rowsPerWord:][:rowsPerWord] {
			if t <= time && used>>(r*rowSlots)&(1<<rowSlots-1) != 0 {
				row, time = word*rowsPerWord+r, t
			}
		}
	}
	return row, time
}
