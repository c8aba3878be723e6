package fleet

import "unsafe"

const (
	segmentBits = 12
	// segmentLen is the number of records in a segment: 48 KiB, which is quickly zeroed under the lock. It is one less
	// than an index can number, so that the rest of a segment fits into a whole number of pages, too.
	segmentLen = 1<<segmentBits - 1
)

// segment has records. Positions in it from used on are free.
type segment struct {
	keys [segmentLen]uint64
	sets [segmentLen]uint32 // set numbers; deadRecord: the record is dead
	used int32
	live int32
}

// deadRecord is the set number of a dead record: the table does not have it. Room behind a chain is dead records.
const deadRecord = 0

// Bounds of the room behind a chain whose blocks come one by one, in records.
const (
	minRoom = 8
	maxRoom = 32
)

const segmentBytes = int64(unsafe.Sizeof(segment{}))

// recordLog has the records of all blocks, each a key and the number of its set of holders. A position is the
// number of a segment and an index in it. Records of a chain lie one after the other.
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

// append adds a record at the end and returns its position.
func (l *recordLog) append(key uint64, set uint32) uint32 {
	if l.growth() > 0 {
		l.addSegment()
	}
	pos := l.tailNum<<segmentBits | uint32(l.tail.used)
	l.tail.used++
	l.dead++
	l.fill(pos, key, set)
	return pos
}

// fill makes a dead record live.
func (l *recordLog) fill(pos uint32, key uint64, set uint32) {
	s, i := l.at(pos)
	s.keys[i], s.sets[i] = key, set
	s.live++
	l.records++
	l.dead--
}

// keepRoom keeps dead records behind the appended ones, so that later blocks of their chain can be put there. There are an
// eighth as many as were appended. If these continue a chain that ends before a position, there are half as many as the
// chain is long, but at most twice the records that were made: many short chains may continue the same one. If at most
// maxOneByOne were appended, blocks come one by one, and there are minRoom to maxRoom.
func (l *recordLog) keepRoom(appended, made int, before uint32) {
	if appended == 0 {
		return
	}
	n, live := appended/8, l.liveBefore(before)
	switch {
	case live == 0:
	case appended <= maxOneByOne:
		n = min(max(minRoom, live/4), maxRoom)
	default:
		n = min((live+appended)/2, 2*made)
	}
	n = min(n, segmentLen-int(l.tail.used))
	l.tail.used += int32(n)
	l.dead += int64(n)
}

// maxOneByOne is how many blocks come at a time when an engine generates: it stores each that is full.
const maxOneByOne = 4

// liveBefore returns the length of the run of live records before a position, which may be any.
func (l *recordLog) liveBefore(pos uint32) (n int) {
	for pos > 0 && l.set(pos-1) != deadRecord {
		n, pos = n+1, pos-1
	}
	return n
}

// set returns the set number of the record at a position, which may be any: deadRecord if there is none.
func (l *recordLog) set(pos uint32) uint32 {
	if int(pos>>segmentBits) >= len(l.segments) {
		return deadRecord
	}
	s, i := l.at(pos)
	if s == nil || i >= segmentLen {
		return deadRecord
	}
	return s.sets[i]
}

// isRoom reports whether there is a dead record at a position, which may be any.
func (l *recordLog) isRoom(pos uint32) bool {
	if int(pos>>segmentBits) >= len(l.segments) {
		return false
	}
	s, i := l.at(pos)
	return s != nil && i < uint32(s.used) && s.sets[i] == deadRecord
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
