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
	newer, older spanID // neighbours in its list, or among the unused ones
	first        slot
	n            uint16
	hot          bool
	mark         uint8  // markUnused, markUsed, or the number of a dump, which has copied it
	store        uint32 // the store that placed or used it last, 0 for a lookup
	time         uint32 // of its last use, see policy
}

const (
	spanChunkBits = 10 // spans are allocated 1,024 at a time
	spanChunk     = 1 << spanChunkBits
	spanSize      = int64(unsafe.Sizeof(span{}))
	// spansPerKey is how many spans a batch takes at most for each of its keys: two to cut
	// a key out that was found, one to move it, and one to place it.
	spansPerKey = 4
	// spareSpans is how many a batch takes at most. Lookups leave it so many.
	spareSpans = spansPerKey * batchKeys
	// mustSplit stands for the number of unused spans that a change leaves, if it must not
	// fail for want of one.
	mustSplit = -1
)

// Marks of a span. Behind them come the numbers of dumps, see dump.number.
const (
	markUnused uint8 = iota
	markUsed
)

// spanList is a list of spans. A dump has come to next on its way to the newest, noSpan behind that.
type spanList struct{ newest, oldest, next spanID }

func (x *Index) span(id spanID) *span {
	return &x.spans[id>>spanChunkBits][id&(spanChunk-1)]
}

// spanBytes is the memory of all spans.
func (x *Index) spanBytes() int64 {
	return int64(len(x.spans))*(spanChunk*spanSize+8) + x.refs.bytes + x.refs.spareBytes
}

// spanRoom bounds the memory of so many chunks of spans and of the segments' books
// of them, whose lists are at least half full.
func spanRoom(chunks int) int64 {
	return int64(chunks) * (spanChunk*(spanSize+2*refBytes) + 8)
}

// addSpans allocates a chunk of spans, or keeps the one that is being drained.
func (x *Index) addSpans() {
	if x.drained > 0 {
		x.keepChunk()
		return
	}
	first := spanID(len(x.spans)) << spanChunkBits
	x.spans = append(x.spans, new([spanChunk]span))
	for i := spanID(spanChunk); i > 0; i-- {
		if id := first + i - 1; id != noSpan {
			x.freeSpan(id)
		}
	}
}

// list returns the list that a span is in.
func (x *Index) list(s *span) *spanList {
	switch {
	case s.mark == markUnused:
		return &x.unused
	case s.hot:
		return &x.hot
	}
	return &x.cold
}

// newSpan returns an unused span. It returns noSpan if no more than leave are unused and
// the byte bound has no room for more; with mustSplit there is one always, as reserve
// has seen to it.
func (x *Index) newSpan(leave int) spanID {
	if x.unused.newest == noSpan || leave != mustSplit && x.unusedSpans <= leave {
		if leave != mustSplit && !x.room(0, 0, 1) {
			return noSpan
		}
		x.addSpans()
	}
	id := x.unused.newest
	x.unlistUnused(id)
	*x.span(id) = span{mark: markUsed}
	return id
}

// freeSpan makes a span unused that is in no list and in no segment's books.
func (x *Index) freeSpan(id spanID) {
	*x.span(id) = span{}
	x.link(id, noSpan)
	x.unusedSpans++
}

// unlistUnused takes a span out of the list of unused ones.
func (x *Index) unlistUnused(id spanID) {
	x.unlink(id)
	x.unusedSpans--
}

// unlink takes a span out of its list.
func (x *Index) unlink(id spanID) {
	s := x.span(id)
	l := x.list(s)
	if l.next == id {
		l.next = s.newer
	}
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
}

// link puts a span into its list right behind another one of that list, on its
// older side; with noSpan it becomes the newest.
func (x *Index) link(id, behind spanID) {
	s := x.span(id)
	l := x.list(s)
	if l.next == behind { // noSpan: the dump has come to the end
		l.next = id
	}
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
}

// renew makes a span the newest of its list.
func (x *Index) renew(id spanID, store uint32) {
	s := x.span(id)
	x.unlink(id)
	s.store, s.time = store, x.policy.clock
	x.link(id, noSpan)
}

// ref returns the place in a segment's books of the first span that begins at or
// behind offset i.
func (s *segment) ref(i int) int {
	at, _ := slices.BinarySearchFunc(s.spans, i, func(r spanRef, i int) int { return int(r.first) - i })
	return at
}

// spanOf returns the span that a slot is in, noSpan if there is none.
func (x *Index) spanOf(s slot) spanID {
	seg, i := x.at(s)
	at := seg.ref(i+1) - 1
	if at < 0 || i >= int(seg.spans[at].first)+int(x.span(seg.spans[at].id).n) {
		return noSpan
	}
	return seg.spans[at].id
}

// splitAt makes a span end in front of offset i of a segment, if one covers it
// there, and returns the place of the first span behind. It fails for want of
// memory, see newSpan.
func (x *Index) splitAt(seg *segment, i, leave int) (at int, ok bool) {
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
	id := x.newSpan(leave)
	if id == noSpan {
		return at, false
	}
	right := x.span(id)
	right.first, right.n, right.hot, right.mark = s.first+slot(keep), s.n-uint16(keep), s.hot, s.mark
	right.store, right.time = s.store, s.time
	s.n = uint16(keep)
	x.link(id, left.id)
	x.addRef(seg, at, i, id)
	return at, true
}

// isolate makes the stretch of n slots from first, within one segment, begin and
// end between spans, and returns the places of the spans in it. If there is no memory
// to split a span, it is all in it.
func (x *Index) isolate(first slot, n, leave int) (seg *segment, from, to int) {
	seg, i := x.at(first)
	from, ok := x.splitAt(seg, i, leave)
	if !ok {
		from--
	}
	to, _ = x.splitAt(seg, i+n, leave) // what is not split begins in front of it
	return seg, from, to
}

// use makes the entries of a stretch, within one segment, the newest hot ones, or
// puts them right behind a span of the hot list; with them, if there is no memory to
// split spans, all others of their spans. It returns the span that holds the end of the
// stretch, noSpan if nothing was done.
func (x *Index) use(first slot, n int, behind spanID, store uint32) spanID {
	if n < leastUse && store == 0 {
		first, n = x.widen(first, n)
	}
	leave := x.leaveSpans
	if store == 0 {
		leave = spareSpans
	}
	seg, from, to := x.isolate(first, n, leave)
	if from == to {
		return noSpan
	}
	if id := seg.spans[from].id; to == from+1 && x.hot.newest == id && behind == noSpan {
		x.span(id).store, x.span(id).time = store, x.policy.clock
		return id
	}
	x.moved += to - from
	x.work += (to - from) * workPerSpan
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
	return seg.spans[to-1].id
}

const (
	// leastUse is how many entries a lookup takes out of a long span at least.
	// Lookups of single keys all over the log would cut it to pieces otherwise.
	leastUse = 4
	longSpan = 256
)

// widen makes a stretch the whole span that it begins in, if that is a long one.
func (x *Index) widen(first slot, n int) (slot, int) {
	if id := x.spanOf(first); id != noSpan && x.span(id).n > longSpan {
		return x.span(id).first, int(x.span(id).n)
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
				left.mark = min(left.mark, right.mark)
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

// place enters new entries, a stretch within one segment: into the given span, if that ends
// in front of them in the log. Otherwise they are hot or cold like the store: right behind that
// span if it is so, too, or the newest. Where spans are few, it enters them into the
// span in front of them in the log. It returns the span that holds them.
func (x *Index) place(first slot, n int, behind spanID, w *Writer) spanID {
	x.work += workPerSpan
	seg, i := x.at(first)
	if behind != noSpan {
		b := x.span(behind)
		if b.first+slot(b.n) == first && b.first>>segmentBits == first>>segmentBits {
			b.store, b.mark = w.store, markUsed
			b.n += uint16(n)
			return behind
		}
		if b.hot != w.hot {
			behind = noSpan
		}
	}
	if x.fewSpans {
		if id := x.placeBeside(first, n, w.store); id != noSpan {
			return id
		}
	}
	id := x.newSpan(mustSplit)
	s := x.span(id)
	s.first, s.n, s.hot, s.store, s.time = first, uint16(n), w.hot, w.store, x.timeBehind(behind)
	x.link(id, behind)
	x.addRef(seg, seg.ref(i), i, id)
	return id
}

// cutOut takes a stretch within one segment out of the spans.
func (x *Index) cutOut(first slot, n int) {
	seg, i := x.at(first)
	for end := i + n; i < end; {
		i += x.cutSpan(seg, seg.ref(i+1)-1, i, end)
	}
}

// cutSpan takes the stretch from offset i to end out of the span at place at of a
// segment's books, which covers i, and returns how much of the stretch that is. It needs
// an unused span if the stretch is in the middle.
func (x *Index) cutSpan(seg *segment, at, i, end int) (n int) {
	x.work += workPerSpan
	r := &seg.spans[at]
	s := x.span(r.id)
	from := int(r.first)
	to := from + int(s.n)
	n = min(end, to) - i
	switch {
	case n == int(s.n):
		x.unlink(r.id)
		x.freeSpan(r.id)
		x.dropRefs(seg, at, at+1)
		return n
	case i == from:
		s.first += slot(n)
		r.first += uint16(n)
	case i+n < to:
		x.splitAt(seg, i+n, mustSplit)
	}
	s.n -= uint16(n)
	return n
}
