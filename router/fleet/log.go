package fleet

import "unsafe"

const (
	segmentBits = 12
	// segmentLen is the number of records in a segment: 48 KiB, which is quickly zeroed under the lock. It is one less
	// than an index can number, so that the rest of a segment fits into a whole number of pages, too.
	segmentLen = 1<<segmentBits - 1
)

// segment has records in the order in which they were appended. Positions in it from used on are free.
type segment struct {
	keys [segmentLen]uint64
	sets [segmentLen]uint32 // set numbers; deadRecord: the record is dead
	used int32
	live int32
}

// deadRecord is the set number of a record that is dead: the table does not have it.
const deadRecord = 0

const segmentBytes = int64(unsafe.Sizeof(segment{}))

// recordLog has the records of all blocks, each a key and the number of its set of holders. A position is the
// number of a segment and an index in it. Records of a chain that was stored at once lie one after the other.
type recordLog struct {
	segments []*segment // by number; nil: freed
	free     []uint32   // numbers of freed segments
	tail     *segment   // is appended to; nil: none
	tailNum  uint32
	records  int64 // that are live
	dead     int64
}

func (l *recordLog) bytes() int64 {
	return int64(len(l.segments)-len(l.free))*segmentBytes + int64(cap(l.segments))*8 + int64(cap(l.free))*4
}

// at returns the segment and the index of a position.
func (l *recordLog) at(pos uint32) (*segment, uint32) {
	return l.segments[pos>>segmentBits], pos & (1<<segmentBits - 1)
}

// growth returns how many bytes the next append allocates.
func (l *recordLog) growth() int64 {
	if l.tail != nil && l.tail.used < segmentLen {
		return 0
	}
	return segmentBytes
}

// append adds a record and returns its position.
func (l *recordLog) append(key uint64, set uint32) uint32 {
	if l.growth() > 0 {
		l.addSegment()
	}
	s, i := l.tail, uint32(l.tail.used)
	s.keys[i], s.sets[i] = key, set
	s.used++
	s.live++
	l.records++
	return l.tailNum<<segmentBits | i
}

func (l *recordLog) addSegment() {
	full, num := l.tail, l.tailNum
	l.tail = new(segment)
	if n := len(l.free); n > 0 {
		l.tailNum, l.free = l.free[n-1], l.free[:n-1]
		l.segments[l.tailNum] = l.tail
	} else {
		l.tailNum = uint32(len(l.segments))
		l.segments = append(l.segments, l.tail)
	}
	if full != nil && full.live == 0 {
		l.freeSegment(num)
	}
}

// markDead marks a record as dead, and frees its segment if no record in it is live.
func (l *recordLog) markDead(pos uint32) {
	s, i := l.at(pos)
	s.sets[i] = deadRecord
	s.live--
	l.records--
	l.dead++
	if s.live == 0 && s != l.tail {
		l.freeSegment(pos >> segmentBits)
	}
}

func (l *recordLog) freeSegment(num uint32) {
	l.dead -= int64(l.segments[num].used)
	l.segments[num] = nil
	l.free = append(l.free, num)
}
