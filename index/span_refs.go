package index

import (
	"math/bits"
	"slices"
	"unsafe"
)

// Each segment lists its spans by their first slot. A list has room for a power of two of them,
// and is at least half full. What lookups have found splits spans and joins them again, so lists
// grow and shrink all the time. Some that are not needed are kept, so that this allocates nothing.

// spanRef is how a segment knows its spans.
type spanRef struct {
	first uint16 // offset in the segment
	id    spanID
}

// refLists is what is known of all lists.
type refLists struct {
	bytes      int64                        // of the segments' lists
	spare      [segmentBits + 1][][]spanRef // empty ones, by the logarithm of their room
	spareBytes int64
}

const (
	refBytes = int64(unsafe.Sizeof(spanRef{}))
	// fewRefs is how many spans a segment's list has room for at least.
	fewRefs = 16
	// mostSpareRefs bounds the lists that are kept, in bytes: those that a lookup of maxStretches
	// pieces makes grow in 8 segments.
	mostSpareRefs = 64 << 10
)

// addRef enters a span into its segment's list.
func (x *Index) addRef(seg *segment, at int, first int, id spanID) {
	x.countShift(len(seg.spans) - at)
	if n := len(seg.spans); n == cap(seg.spans) {
		x.resizeRefs(seg, max(2*n, fewRefs))
	}
	seg.spans = slices.Insert(seg.spans, at, spanRef{uint16(first), id})
}

// dropRefs takes spans out of a segment's list, and gives it less room if it is less than half
// full.
func (x *Index) dropRefs(seg *segment, from, to int) {
	if to > from {
		x.countShift(len(seg.spans) - to)
	}
	seg.spans = slices.Delete(seg.spans, from, to)
	if n := len(seg.spans); cap(seg.spans) > fewRefs && 2*n < cap(seg.spans) {
		x.resizeRefs(seg, max(1<<bits.Len(uint(n)), fewRefs))
	}
}

// countShift counts that n refs of a segment's list are moved.
func (x *Index) countShift(n int) {
	x.work += n / refsPerWork
	x.moved += n / refsPerWork / workPerSpan
}

// resizeRefs gives a segment's list room for n spans, a power of two.
func (x *Index) resizeRefs(seg *segment, n int) {
	l, old := &x.refs, seg.spans
	var list []spanRef
	if spare := &l.spare[bits.Len(uint(n))-1]; len(*spare) > 0 {
		last := len(*spare) - 1
		list, *spare = (*spare)[last], (*spare)[:last]
		l.spareBytes -= int64(n) * refBytes
	} else {
		list = make([]spanRef, 0, n)
	}
	seg.spans = append(list, old...)
	l.bytes += int64(n-cap(old)) * refBytes
	if room := int64(cap(old)) * refBytes; room > 0 && l.spareBytes+room <= mostSpareRefs {
		spare := &l.spare[bits.Len(uint(cap(old)))-1]
		*spare = append(*spare, old[:0])
		l.spareBytes += room
	}
}
