package index

import (
	"math/bits"
	"unsafe"

	"github.com/hitline/hitline/simd"
)

// segmentSlots is the number of records in a segment: a run is compared within
// one, so it is much longer than a chain's usual stretch, and it is what the
// writers keep their books by.
const (
	segmentBits  = 12
	segmentSlots = 1 << segmentBits
	segmentMask  = segmentSlots - 1
	// maxSegments is as many as slots can number, less the one that noSlot lies in: 4
	// billion entries, some 240 GB of 32 bytes each.
	maxSegments = 1<<(32-segmentBits) - 1
)

// slot numbers a record: its segment in the high bits, its place there in the
// low ones.
type slot uint32

// noSlot is no record at all: the end of a list, an unknown position.
const noSlot = ^slot(0)

// segment is a stretch of the log: fixed-width records and the class of each.
// Keys of consecutive slots lie one after the other, so a stored chain is
// compared as one array. It is one cache line. The zero value is one that was
// released.
type segment struct {
	hashLen int
	keys    []byte  // segmentSlots records of hashLen bytes
	class   []class // noClass: the slot is free
	*books
}

// books are what writers know of a segment; readers see same and links as well.
type books struct {
	// same is the class of each 64 slots that all have one, else noClass: of most of
	// a log it is all that readers look at. It stays in the processor's cache.
	same  [segmentSlots / 64]class
	slab  *slab
	used  [segmentSlots / 64]uint64 // bit i: slot i is taken, if only by a writer that has not published it yet
	free  int                       // slots that are not
	spans []spanRef                 // of this segment, by their first slot
	links links
}

// slotBytes is what a slot takes beside its key: its class.
const slotBytes = 2

// segmentHead is the size of a segment without its slots.
const segmentHead = int64(unsafe.Sizeof(segment{}) + unsafe.Sizeof(books{}))

// slab is the memory of one or more segments, allocated at once so that large
// logs lie on huge pages.
type slab struct {
	hashLen  int
	segments []int
	records  *memory
	bytes    int64
}

const (
	// slabShare is how much the log and the table grow at a time: by a 16th of what
	// there is, so that 3 % lie idle on average.
	slabShare = 16
	// slabMost bounds it, in bytes: zeroing more would hold up a store.
	slabMost = 16 << 20
)

// slabBytes is the size of a slab of n segments for keys of hashLen bytes.
func slabBytes(n, hashLen int) int64 {
	return memorySize(int64(n)*segmentSlots*int64(hashLen+slotBytes)) + int64(n)*segmentHead
}

// slabUnits says how many units of so many bytes the next slab has, when there
// are total bytes of them: huge pages full, once that many are due.
func slabUnits(total, unit int64) int64 {
	n := min(total/slabShare, slabMost)
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

// valid returns s if there may be records of hashLen bytes from it on, and
// noSlot otherwise: what a cursor or writer remembers may be gone.
func (x *Index) valid(s slot, hashLen int) slot {
	id := int(s >> segmentBits)
	if s == noSlot || id >= len(x.segments) || x.segments[id].hashLen != hashLen {
		return noSlot
	}
	return s
}

// classOf returns the class of the slot at offset i.
func (s *segment) classOf(i int) class {
	if id := s.same[i/64]; id != noClass {
		return id
	}
	return s.class[i]
}

// classRun returns how many of n slots from offset i on have the class of the first.
func (s *segment) classRun(i, n int) int {
	id := s.classOf(i)
	for run := 0; ; {
		at := i + run
		left := min(64-at%64, n-run)
		switch s.same[at/64] {
		case id: // and more of them
			words := simd.RunLength16(s.same[at/64 : (i+n+63)/64])
			left = min(64*words-at%64, n-run)
		case noClass:
			if s.class[at] != id {
				return run
			}
			if r := simd.RunLength16(s.class[at : at+left]); r < left {
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

// sum sums up the classes of the 64 slots around offset i.
func (s *segment) sum(i int) {
	classes := s.class[i&^63:][:64]
	s.same[i/64] = noClass
	if simd.RunLength16(classes) == 64 {
		s.same[i/64] = classes[0]
	}
}

// key returns the record at offset i.
func (s *segment) key(i int) []byte {
	return s.keys[i*s.hashLen : (i+1)*s.hashLen]
}

// grow adds a slab for keys of hashLen bytes if the byte bound allows it and the
// table that its slots may need.
func (x *Index) grow(hashLen int) bool {
	var n int
	for n = int(slabUnits(x.logBytes, segmentSlots*int64(hashLen+slotBytes))); ; n = max(n/2, 1) {
		if x.room(n, slabBytes(n, hashLen), 0) {
			break
		}
		if n == 1 {
			return false
		}
	}
	sl := &slab{hashLen: hashLen, records: newMemory(n * segmentSlots * (hashLen + slotBytes)), bytes: slabBytes(n, hashLen)}
	keys := sl.records.bytes[:n*segmentSlots*hashLen] // a multiple of 4,096 long
	classes := unsafe.Slice((*class)(unsafe.Pointer(unsafe.SliceData(sl.records.bytes[len(keys):]))), n*segmentSlots)
	added := make([]segment, n)
	for i := range added {
		from, to := i*segmentSlots, (i+1)*segmentSlots
		added[i] = segment{
			hashLen: hashLen, keys: keys[from*hashLen : to*hashLen : to*hashLen], class: classes[from:to:to],
			books: &books{slab: sl, free: segmentSlots},
		}
	}
	x.mu.Lock()
	for _, seg := range added {
		id := len(x.segments)
		if v := len(x.vacant); v > 0 {
			id = x.vacant[v-1]
			x.vacant = x.vacant[:v-1]
			x.segments[id] = seg
		} else {
			x.segments = append(x.segments, seg)
		}
		sl.segments = append(sl.segments, id)
	}
	x.logBytes += sl.bytes
	x.mu.Unlock()
	x.slots += int64(n) * segmentSlots
	x.free[hashLen] += int64(n) * segmentSlots
	return true
}

// room tells whether the byte bound has room for so many more segments, in a slab of
// so many bytes, and chunks of spans.
func (x *Index) room(n int, slab int64, chunks int) bool {
	table := max(x.table.bytes(), worstTable(x.slots+int64(n)*segmentSlots))
	segments := int64(len(x.segments) - len(x.vacant) + n)
	heads := max(segments*headRoom, x.headBytes) // segments that are gone may have left room to others
	spans := spanRoom(len(x.spans)+chunks) + segments*fewRefs*refBytes
	need := x.logBytes + slab + table + spans + heads + x.classes.sweepAt + fixedBytes
	for need+x.discardBytes > x.maxBytes && x.releaseStep() {
	}
	return need <= x.maxBytes && segments <= maxSegments
}

// opening is a stretch of free slots that new records are put into.
type opening struct{ at, end slot }

// take returns the next free slot for a key of hashLen bytes; the caller knows
// that there is one. Slots are handed out upwards, so that chains lie in order.
func (x *Index) take(hashLen int) slot {
	o := &x.open[hashLen]
	if o.at == o.end {
		x.openNext(hashLen)
	}
	s := o.at
	o.at++
	seg, i := x.at(s)
	seg.used[i/64] |= 1 << (i % 64)
	seg.free--
	x.free[hashLen]--
	return s
}

// openNext finds the next free stretch: further up in the segment at hand, or
// else in the segment that has the most free slots.
func (x *Index) openNext(hashLen int) {
	o := &x.open[hashLen]
	if id := int(o.end >> segmentBits); o.end > 0 && id == int((o.end-1)>>segmentBits) && x.valid(o.end, hashLen) != noSlot {
		if from, to := x.segments[id].freeFrom(int(o.end & segmentMask)); from < to {
			first := slot(id) << segmentBits
			o.at, o.end = first+slot(from), first+slot(to)
			return
		}
	}
	best := -1
	for id := range x.segments {
		if seg := &x.segments[id]; seg.hashLen == hashLen && seg.free > 0 && (best < 0 || seg.free > x.segments[best].free) {
			best = id
		}
	}
	from, to := x.segments[best].freeFrom(0)
	first := slot(best) << segmentBits
	o.at, o.end = first+slot(from), first+slot(to)
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

// give makes a stretch of slots within one segment free; readers know already.
func (x *Index) give(first slot, n int) {
	seg, i := x.at(first)
	for j := i; j < i+n; j++ {
		seg.used[j/64] &^= 1 << (j % 64)
	}
	seg.free += n
	x.free[seg.hashLen] += int64(n)
}

// dropSlab evicts every entry of a slab and releases it: how memory moves from
// keys of one length to keys of another. A pool has one hash length, so this is
// rare.
func (x *Index) dropSlab(sl *slab) {
	for _, id := range sl.segments {
		for refs := x.segments[id].spans; len(refs) > 0; refs = x.segments[id].spans {
			x.evictTail(refs[len(refs)-1].id, segmentSlots)
		}
		x.refBytes -= int64(cap(x.segments[id].spans)) * refBytes
	}
	if o := &x.open[sl.hashLen]; x.valid(o.at, sl.hashLen) != noSlot && x.segments[o.at>>segmentBits].slab == sl {
		*o = opening{}
	}
	x.mu.Lock()
	for _, id := range sl.segments {
		x.headBytes -= int64(cap(x.segments[id].links.heads)) * headBytes
		x.segments[id] = segment{}
	}
	x.logBytes -= sl.bytes
	x.mu.Unlock()
	x.discard(sl.records)
	x.vacant = append(x.vacant, sl.segments...)
	n := int64(len(sl.segments)) * segmentSlots
	x.slots -= n
	x.free[sl.hashLen] -= n
}
