package index

import (
	"container/heap"
	"math"
	"unsafe"

	"github.com/hitline/hitline/simd"
)

// segmentSlots is the number of records in a segment: a run is compared within
// one, so it is much longer than a chain's usual stretch. Writers keep one record of
// free slots and of use for each.
const (
	segmentBits  = 12
	segmentSlots = 1 << segmentBits
	segmentMask  = segmentSlots - 1
	// groupSlots is the number of slots of a group, which may have one class and one digest: as
	// many as one word has bits.
	groupSlots = 64
	// maxSegments is as many as slots can number, less the one that noSlot lies in: 4
	// billion entries, some 240 GB of 32 bytes each.
	maxSegments = 1<<(32-segmentBits) - 1
)

// slot numbers a record: its segment in the high bits, its place there in the
// low ones.
type slot uint32

// noSlot is no slot: an absent key, an unknown position.
const noSlot = ^slot(0)

// segment is a stretch of the log: fixed-width records and the class of each.
// Keys of consecutive slots lie one after the other, so a stored chain is
// compared as one array. It is small, so that the list of all segments stays in the
// processor's cache while keys in no order are looked for.
type segment struct {
	keys *byte // the first of segmentSlots records of hashLen bytes
	*segmentMeta
}

// segmentMeta are what is known of a segment besides its records.
type segmentMeta struct {
	// Readers see these. Of most of a log they look at nothing else, and it stays in the
	// processor's cache.
	groupClass [segmentSlots / groupSlots]class // of each group whose slots all have one, else noClass
	class      []class                          // noClass: the slot is free
	hashLen    int
	digests    [segmentSlots / groupSlots]simd.Digest // of the group's keys; of no meaning where groupClass is noClass
	_          cacheLine

	lastUse  [segmentRows]uint64 // of each row, by Index.clock; of no meaning for an empty one
	usedLast [segmentRows]uint8  // its slots that were used then
	used     slotSet             // taken, if only by a writer that has not published the slot yet
	free     int                 // slots that are not
	bound    uint64              // none of its rows was used before that
	heapAt   int32               // its place in Index.byUse
	number   int32               // of the segment
	level    int                 // the list of freeSegments it is in, 0 for none
	near     [2]int32            // the segments before and after it there, -1 for none
}

// slotBytes is what a slot takes besides its key: its class.
const slotBytes = 2

// segmentHead is the size of a segment without its slots.
const segmentHead = int64(unsafe.Sizeof(segment{})+unsafe.Sizeof(segmentMeta{})) + heapBytes

const (
	// slabShare is how much the log and the table grow at a time: by a 16th of what
	// there is, so that 3 % lie idle on average.
	slabShare = 16
	// maxSlabBytes bounds it, in bytes: zeroing more would hold up a store.
	maxSlabBytes = 16 << 20
)

// slabBytes is the size of a slab of n segments for keys of hashLen bytes.
func slabBytes(n, hashLen int) int64 {
	return memorySize(int64(n)*segmentSlots*int64(hashLen+slotBytes)) + int64(n)*segmentHead
}

// slabUnits says how many units of so many bytes the next slab has, when there
// are total bytes of them: huge pages full, once that many are due.
func slabUnits(total, unit int64) int64 {
	n := min(total/slabShare, maxSlabBytes)
	if n >= hugePage {
		n &^= hugePage - 1
	}
	return max(n/unit, 1)
}

// at splits a slot into its segment, valid until the log grows, and the offset
// there.
func (x *Index) at(s slot) (*segment, int) {
	return &x.segments[s>>segmentBits], int(s & segmentMask)
}

// valid returns s if the log has such a slot, and noSlot otherwise: what a cursor or
// writer remembers may be gone.
func (x *Index) valid(s slot) slot {
	if int(s>>segmentBits) >= len(x.segments) { // noSlot is beyond any
		return noSlot
	}
	return s
}

// classOf returns the class of the slot at offset i.
func (s *segment) classOf(i int) class {
	if id := *s.classOfGroup(i); id != noClass {
		return id
	}
	return s.class[i]
}

// classOfGroup returns &s.groupClass[i/groupSlots] for an offset i. The compiler would check s.segmentMeta
// for nil by a read of the first class, which may be in another cache line.
func (s *segment) classOfGroup(i int) *class {
	return (*class)(unsafe.Add(unsafe.Pointer(s.segmentMeta), unsafe.Offsetof(segmentMeta{}.groupClass)+uintptr(i/groupSlots)*unsafe.Sizeof(noClass)))
}

// classRun returns how many of n slots from offset i on have the class of the first.
func (s *segment) classRun(i, n int) int {
	id := s.classOf(i)
	for run := 0; ; {
		at := i + run
		left := min(groupSlots-at%groupSlots, n-run)
		switch s.groupClass[at/groupSlots] {
		case id: // and more of them
			groups := runStrided(s.groupClass[at/groupSlots:], 1, (i+n+groupSlots-1)/groupSlots-at/groupSlots)
			left = min(groups*groupSlots-at%groupSlots, n-run)
		case noClass:
			if s.class[at] != id {
				return run
			}
			if r := runStrided(s.class[at:], 1, left); r < left {
				return run + r
			}
		default:
			return run
		}
		if run += left; run == n {
			return n
		}
	}
}

// summarizeGroup sets the class of the group of slots around offset i, if all have one, and then the
// digest of its keys. The caller holds mu.
func (x *Index) summarizeGroup(seg *segment, i int) {
	group := i / groupSlots
	classes := seg.class[group*groupSlots:][:groupSlots]
	seg.groupClass[group] = noClass
	if classes[0] == noClass || runStrided(classes, 1, groupSlots) < groupSlots {
		return
	}
	seg.groupClass[group] = classes[0]
	if x.digests {
		seg.digests[group] = x.secret.Sum(seg.records(group*groupSlots, groupSlots))
	}
}

// key returns the record at offset i.
func (s *segment) key(i int) []byte {
	return s.records(i, 1)
}

// records returns the n records from offset i on. The caller knows that the segment has them.
func (s *segment) records(i, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(s.keys), i*s.hashLen)), n*s.hashLen)
}

// freshSlab is the part of the newest slab that no segment has yet.
type freshSlab struct {
	keys    []byte
	classes []class
}

// grow adds a segment, and before it a slab if that is due and the byte bound allows it and
// the table that its slots may need.
func (x *Index) grow() bool {
	if len(x.freshSlab.classes) == 0 && !x.addSlab() {
		return false
	}
	hashLen := x.hashLen
	slab := &x.freshSlab
	keys, classes := slab.keys[:segmentSlots*hashLen], slab.classes[:segmentSlots:segmentSlots]
	slab.keys, slab.classes = slab.keys[len(keys):], slab.classes[segmentSlots:]
	for i := 0; i < segmentSlots; i += smallPage / slotBytes {
		classes[i] = noClass // the system gives the memory now, not when readers wait
	}
	id := len(x.segments)
	segments := append(x.segments, segment{ // readers do not see it yet
		keys: unsafe.SliceData(keys), segmentMeta: &segmentMeta{class: classes, hashLen: hashLen, free: segmentSlots, number: int32(id), bound: math.MaxUint64},
	})
	x.mu.Lock()
	x.segments = segments
	x.mu.Unlock()
	x.slots += segmentSlots
	x.free += segmentSlots
	x.relist(id)
	heap.Push(&x.byUse, segments[id].segmentMeta)
	return true
}

// addSlab allocates the memory of the next segments.
func (x *Index) addSlab() bool {
	hashLen := x.hashLen
	var n int
	for n = int(slabUnits(x.logBytes, segmentSlots*int64(hashLen+slotBytes))); ; n = max(n/2, 1) {
		if x.room(n, slabBytes(n, hashLen)) {
			break
		}
		if n == 1 {
			return false
		}
	}
	records := newMemory(n * segmentSlots * (hashLen + slotBytes))
	keys := records.bytes[:n*segmentSlots*hashLen] // a multiple of 4,096 long
	x.freshSlab = freshSlab{keys, unsafe.Slice((*class)(unsafe.Pointer(unsafe.SliceData(records.bytes[len(keys):]))), n*segmentSlots)}
	x.slabs = append(x.slabs, records)
	x.logBytes += slabBytes(n, hashLen)
	return true
}

// room reports whether the byte bound has room for n more segments, in a slab of that many bytes.
func (x *Index) room(n int, slab int64) bool {
	n += len(x.freshSlab.classes) / segmentSlots
	slots := x.slots + int64(n)*segmentSlots
	segments := int64(len(x.segments) + n)
	table := max(x.table.bytes(), worstTable(slots))
	need := x.logBytes + slab + table + x.classes.budget + fixedBytes
	if need > x.maxBytes || segments > maxSegments {
		return false
	}
	for need+x.discardBytes > x.maxBytes && x.releaseStep() {
	}
	return true
}
