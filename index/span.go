package index

import (
	"slices"
	"unsafe"
)

// What was used when is kept by spans: a span is a stretch of the log, within one
// segment, whose entries were stored or used last at the same time. Spans stand in
// one of two lists, from the newest to the oldest; room is made at the tail of the
// oldest span of one of them (policy.go), so that the end of a cold chain goes
// before its beginning. Where a use ends inside a span, the span is split. Every
// entry is in one span.

// spanID numbers a span; noSpan is none.
type spanID uint32

const noSpan spanID = 0

// noStore is the number of no store.
const noStore = ^uint32(0)

type span struct {
	newer, older spanID // neighbours in its list; older also links the unused ones
	first        slot
	n            uint16
	hot          bool
	used         bool
	store        uint32 // the store that placed or used it last, 0 for a lookup
	time         uint32 // of its last use, see policy
}

// spanRef is how a segment knows its spans.
type spanRef struct {
	first uint16 // offset in the segment
	id    spanID
}

const (
	spanChunkBits = 10 // spans are allocated 1,024 at a time
	spanChunk     = 1 << spanChunkBits
	spanSize      = int64(unsafe.Sizeof(span{}))
	refBytes      = int64(unsafe.Sizeof(spanRef{}))
	// spareSpans is how many spans a batch takes at most: two to cut a key out that was
	// found, two more to move it, and one to place it.
	spareSpans = 5 * batchKeys
	// fewRefs is how many spans a segment's list keeps room for.
	fewRefs = 16
)

// spanList is a list of spans and the number of their entries.
type spanList struct {
	newest, oldest spanID
	entries        int64
}

func (x *Index) span(id spanID) *span {
	return &x.spans[id>>spanChunkBits][id&(spanChunk-1)]
}

// spanBytes is the memory of all spans.
func (x *Index) spanBytes() int64 {
	return int64(len(x.spans))*(spanChunk*spanSize+8) + x.refBytes
}

// spanRoom bounds the memory of so many chunks of spans and of the segments' books
// of them, whose lists are at least half full.
func spanRoom(chunks int) int64 {
	return int64(chunks) * (spanChunk*(spanSize+2*refBytes) + 8)
}

// reserve sees that a batch of a store, noStore for an eviction, finds unused spans for
// all that it cuts out and places, and that the classes have the room that they may take.
// Where the byte bound leaves none, the slab of the oldest span makes way, or the span
// alone if the slab holds something of the store as well. It returns false if only that
// is left and there are not spans enough.
func (x *Index) reserve(store uint32) bool {
	for {
		x.sweepClasses()
		enough := x.unusedSpans >= spareSpans
		if enough && x.room(0, 0, 0) {
			return true
		}
		if !enough && x.room(0, 0, 1) {
			x.addSpans()
			continue
		}
		id := x.oldest(store)
		if id == noSpan {
			return enough
		}
		x.evicting = true
		if seg, _ := x.at(x.span(id).first); x.holdsStore(seg.slab, store) {
			x.evictTail(id, segmentSlots)
		} else {
			x.dropSlab(seg.slab)
		}
	}
}

// holdsStore tells whether a store has placed or used something in a slab.
func (x *Index) holdsStore(sl *slab, store uint32) bool {
	for _, id := range sl.segments {
		for _, r := range x.segments[id].spans {
			if x.span(r.id).store == store {
				return true
			}
		}
	}
	return false
}

// addSpans allocates a chunk of spans.
func (x *Index) addSpans() {
	first := spanID(len(x.spans)) << spanChunkBits
	x.spans = append(x.spans, new([spanChunk]span))
	for i := spanID(spanChunk); i > 0; i-- {
		if id := first + i - 1; id != noSpan {
			x.freeSpan(id)
		}
	}
}

func (x *Index) list(hot bool) *spanList {
	if hot {
		return &x.hot
	}
	return &x.cold
}

// newSpan returns an unused span. When the byte bound leaves no room for more of
// them than a batch needs it returns noSpan, unless one must be had.
func (x *Index) newSpan(must bool) spanID {
	if x.unusedSpan == noSpan || !must && x.unusedSpans <= spareSpans {
		if !must && !x.room(0, 0, 1) {
			return noSpan
		}
		x.addSpans()
	}
	x.unusedSpans--
	id := x.unusedSpan
	s := x.span(id)
	x.unusedSpan = s.older
	*s = span{used: true}
	return id
}

// freeSpan forgets a span that is in no list and in no segment's books.
func (x *Index) freeSpan(id spanID) {
	*x.span(id) = span{older: x.unusedSpan}
	x.unusedSpan = id
	x.unusedSpans++
}

// unlink takes a span out of its list.
func (x *Index) unlink(id spanID) {
	s := x.span(id)
	l := x.list(s.hot)
	if s.newer == noSpan {
		l.newest = s.older
	} else {
		x.span(s.newer).older = s.older
	}
	if s.older == noSpan {
		l.oldest = s.newer
	} else {
		x.span(s.older).newer = s.newer
	}
	l.entries -= int64(s.n)
}

// link puts a span into its list right behind another one of that list, on its
// older side; with noSpan it becomes the newest.
func (x *Index) link(id, behind spanID) {
	s := x.span(id)
	l := x.list(s.hot)
	s.newer = behind
	if behind == noSpan {
		s.older, l.newest = l.newest, id
	} else {
		b := x.span(behind)
		s.older, b.older = b.older, id
	}
	if s.older == noSpan {
		l.oldest = id
	} else {
		x.span(s.older).newer = id
	}
	l.entries += int64(s.n)
}

// ref returns the place in a segment's books of the first span that begins at or
// behind offset i.
func (s *segment) ref(i int) int {
	at, _ := slices.BinarySearchFunc(s.spans, i, func(r spanRef, i int) int { return int(r.first) - i })
	return at
}

// addRef enters a span into its segment's books.
func (x *Index) addRef(seg *segment, at int, first int, id spanID) {
	before := cap(seg.spans)
	seg.spans = slices.Insert(seg.spans, at, spanRef{uint16(first), id})
	x.refBytes += int64(cap(seg.spans)-before) * refBytes
}

// splitAt makes a span end in front of offset i of a segment, if one covers it
// there, and returns the place of the first span behind. It fails for want of
// memory, unless the split must be.
func (x *Index) splitAt(seg *segment, i int, must bool) (at int, ok bool) {
	at = seg.ref(i)
	if at == 0 || at < len(seg.spans) && int(seg.spans[at].first) == i {
		return at, true
	}
	left := seg.spans[at-1]
	s := x.span(left.id)
	keep := i - int(left.first)
	if keep >= int(s.n) {
		return at, true
	}
	id := x.newSpan(must)
	if id == noSpan {
		return at, false
	}
	right := x.span(id)
	right.first, right.n, right.hot, right.store, right.time = s.first+slot(keep), s.n-uint16(keep), s.hot, s.store, s.time
	x.list(s.hot).entries -= int64(right.n)
	s.n = uint16(keep)
	x.link(id, left.id)
	x.addRef(seg, at, i, id)
	return at, true
}

// isolate makes the stretch of n slots from first, within one segment, begin and
// end between spans, and returns the places of the spans in it. It fails when
// there is no memory to split a span.
func (x *Index) isolate(first slot, n int, must bool) (seg *segment, from, to int, ok bool) {
	seg, i := x.at(first)
	from, ok = x.splitAt(seg, i, must)
	if !ok {
		return seg, from, from, false
	}
	to, ok = x.splitAt(seg, i+n, must)
	return seg, from, to, ok
}

// use makes the entries of a stretch, within one segment, the newest hot ones, or
// puts them right behind a span of the hot list. It returns the span that holds
// the end of the stretch, noSpan if nothing was done.
func (x *Index) use(first slot, n int, behind spanID, store uint32) spanID {
	if n < leastUse && store == 0 {
		first, n = x.widen(first, n)
	}
	seg, from, to, ok := x.isolate(first, n, store != 0) // what a store has found must not be evicted for it
	if !ok || from == to {
		return noSpan
	}
	if id := seg.spans[from].id; to == from+1 && x.hot.newest == id && behind == noSpan {
		x.span(id).store, x.span(id).time = store, x.policy.clock
		return id
	}
	x.moved += to - from
	for _, r := range seg.spans[from:to] {
		if r.id == behind { // a chain that repeats a key
			behind = noSpan
		}
	}
	to = x.merge(seg, from, to)
	for k := to - 1; k >= from; k-- {
		id := seg.spans[k].id
		s := x.span(id)
		s.hot, s.store, s.time = true, store, x.timeBehind(behind)
		x.link(id, behind)
	}
	last := seg.spans[to-1].id
	return last
}

const (
	// leastUse is how many entries a lookup takes out of a long span at least.
	// Lookups of single keys all over the log would cut it to pieces otherwise.
	leastUse = 4
	longSpan = 256
)

// widen makes a stretch the whole span that it begins in, if that is a long one.
func (x *Index) widen(first slot, n int) (slot, int) {
	seg, i := x.at(first)
	at := seg.ref(i + 1)
	if at == 0 {
		return first, n
	}
	if s := x.span(seg.spans[at-1].id); s.n > longSpan && i < int(seg.spans[at-1].first)+int(s.n) {
		return s.first, int(s.n)
	}
	return first, n
}

// timeBehind is the time of use that a span gets behind another one.
func (x *Index) timeBehind(behind spanID) uint32 {
	if behind == noSpan {
		return x.policy.clock
	}
	return x.span(behind).time
}

// merge takes spans out of their lists and joins those that touch. It returns the
// place behind the last of what is left.
func (x *Index) merge(seg *segment, from, to int) int {
	kept := from
	for k := from; k < to; k++ {
		r := seg.spans[k]
		x.unlink(r.id)
		if k > from {
			left, right := x.span(seg.spans[kept-1].id), x.span(r.id)
			if left.first+slot(left.n) == right.first {
				left.n += right.n
				x.freeSpan(r.id)
				continue
			}
		}
		seg.spans[kept] = r
		kept++
	}
	x.dropRefs(seg, kept, to)
	return kept
}

// place enters new entries, a stretch within one segment, as cold: right behind a
// span of the cold list, or as the newest. It returns the span that holds them.
func (x *Index) place(first slot, n int, behind spanID, store uint32) spanID {
	seg, i := x.at(first)
	if behind != noSpan {
		if b := x.span(behind); b.first+slot(b.n) == first && b.first>>segmentBits == first>>segmentBits {
			b.n += uint16(n)
			x.cold.entries += int64(n)
			return behind
		}
	}
	id := x.newSpan(true)
	s := x.span(id)
	s.first, s.n, s.store, s.time = first, uint16(n), store, x.timeBehind(behind)
	x.link(id, behind)
	x.addRef(seg, seg.ref(i), i, id)
	return id
}

// forget takes a stretch within one segment out of the spans.
func (x *Index) forget(first slot, n int) {
	seg, from, to, _ := x.isolate(first, n, true)
	for _, r := range seg.spans[from:to] {
		x.unlink(r.id)
		x.freeSpan(r.id)
	}
	x.dropRefs(seg, from, to)
}

// dropRefs takes spans out of a segment's books, and gives back the memory of a list
// that is less than half full.
func (x *Index) dropRefs(seg *segment, from, to int) {
	seg.spans = slices.Delete(seg.spans, from, to)
	if n := cap(seg.spans); n > fewRefs && 2*len(seg.spans) < n {
		spans := make([]spanRef, len(seg.spans), max(len(seg.spans)*3/2, fewRefs))
		copy(spans, seg.spans)
		seg.spans = spans
		x.refBytes -= int64(n-cap(spans)) * refBytes
	}
}
