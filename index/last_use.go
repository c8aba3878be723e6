package index

import (
	"container/heap"
	"math"
)

// When entries were used last is known by row: rowSlots consecutive slots of a segment have one time of use,
// that of the entry used last, and are evicted together. Times are numbers of Index.clock: a store has one, and
// so has each stretch that a lookup has found. A row also knows which of its slots were used at that time, so that
// a store need not keep what only shares a row with its keys.
//
// A segment keeps a lower bound of the times of its rows, and a heap orders the segments by it. So the oldest
// row is found in the first segment, once its bound has been brought up to date.

const (
	rowSlots    = 8
	segmentRows = segmentSlots / rowSlots
	rowsPerWord = 64 / rowSlots // of a slotSet
	// maxLooks bounds the segments that a search for the oldest row looks at, by the heap and in turn.
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

// markUsed sets the time of use of the rows of a stretch, within one segment. A row that was used later gets the time,
// too: it is the row of a store, which does not evict it then.
func (x *Index) markUsed(first slot, n int, time uint64) {
	seg, i := x.at(first)
	for end := i + n; i < end; {
		row, from := i/rowSlots, i%rowSlots
		used := min(rowSlots-from, end-i)
		slots := uint8(1<<used-1) << from
		if seg.lastUse[row] == time {
			seg.usedLast[row] |= slots
		} else {
			seg.lastUse[row], seg.usedLast[row] = time, slots
		}
		i += used
	}
	if time < seg.bound {
		seg.bound = time
		heap.Fix(&x.byUse, int(seg.heapAt))
	}
}

// noUse is the time of use of a row whose entries are being evicted.
const noUse = math.MaxUint64

// oldestRow returns the first slot of the row to evict from for a store, and which of its slots: all entries of the
// row used least recently, if that was before the store. Otherwise it looks at some segments in turn, for a row used
// since then, or for entries that only share a row with keys of the store. It returns noSlot if it finds none. If
// lookups have used many segments since the last search, the row is only one of the oldest.
func (x *Index) oldestRow(w *Writer) (first slot, slots uint8) {
	first, oldest := noSlot, w.use
	for looks := 0; looks < maxLooks && len(x.byUse) > 0 && x.byUse[0].bound < oldest; looks++ {
		s := x.byUse[0]
		row, time := s.leastRecentRow(noUse)
		if time < oldest {
			first, slots, oldest = s.slotOf(row), s.entriesOf(row), time
		}
		s.bound = time
		heap.Fix(&x.byUse, 0)
	}
	for looks := 0; looks < min(maxLooks, len(x.byUse)) && first == noSlot; looks++ {
		x.lookAt = (x.lookAt + 1) % len(x.byUse)
		s := x.byUse[x.lookAt]
		if row, time := s.leastRecentRow(w.use); time < noUse {
			first, slots = s.slotOf(row), s.entriesOf(row)
		} else if row := s.sharedRow(w.use); row >= 0 {
			first, slots = s.slotOf(row), s.entriesOf(row)&^s.usedLast[row]
		}
	}
	return first, slots
}

// slotOf returns the first slot of a row.
func (s *segmentMeta) slotOf(row int) slot { return slot(s.number)<<segmentBits + slot(row*rowSlots) }

// entriesOf returns which slots of a row have an entry.
func (s *segmentMeta) entriesOf(row int) uint8 {
	return uint8(s.used.words[row/rowsPerWord] >> (row % rowsPerWord * rowSlots))
}

// leastRecentRow returns the row of a segment that was used least recently, and when, but for rows used at one
// time. Of those used at the same time it returns the last, so that the end of a chain goes before its beginning. The
// time is noUse if there is none.
func (s *segmentMeta) leastRecentRow(except uint64) (row int, time uint64) {
	time = noUse
	for word, used := range s.used.words {
		if used == 0 {
			continue
		}
		for r, t := range s.lastUse[word*rowsPerWord:][:rowsPerWord] {
			if t <= time && t != except && t != noUse && used>>(r*rowSlots)&(1<<rowSlots-1) != 0 {
				row, time = word*rowsPerWord+r, t
			}
		}
	}
	return row, time
}

// sharedRow returns the last row that was used at a time and has an entry that was not, -1 if there is none.
func (s *segmentMeta) sharedRow(time uint64) int {
	for row := segmentRows - 1; row >= 0; row-- {
		if s.lastUse[row] == time && s.entriesOf(row)&^s.usedLast[row] != 0 {
			return row
		}
	}
	return -1
}
