package index

// Spans take memory that the log cannot give back. So a part of the byte bound is kept
// for them, and where that is used up, neighbours in the log are joined that were used at
// about the same time.

const (
	// slotsPerSpan is for how many slots of the log there is always room for one span:
	// below that no use is told from that of its neighbours.
	slotsPerSpan = 128
	// keepSpans is how many unused spans a batch of changes leaves to lookups and to the
	// next batch.
	keepSpans = 2 * spareSpans
	// joinWindow is of how many neighbours joinSpans joins two.
	joinWindow = 5
	// looksPerKey is how many spans joinSpans looks at for each key of a batch: enough for
	// all spans that the key may take, where spans have neighbours. looksPerBatch comes on
	// top.
	looksPerKey   = spansPerKey * joinWindow
	looksPerBatch = 64
	// smallSpan is the number of entries up to which a span is evicted because it is
	// needed for others. If all spans there may be are used, at least half of them are
	// not larger.
	smallSpan = 2 * slotsPerSpan
)

// leastChunks is how many chunks of spans a log of so many slots has room for, whatever
// else there is.
func leastChunks(slots int64) int { return int(slots/slotsPerSpan/spanChunk) + 1 }

// reserve sees that a batch of n keys finds as many unused spans as it may take. Where
// the byte bound leaves no room for more, it joins spans. If that does not help at once
// the batch does with fewer: it moves no keys and splits spans only while one for each key
// is left. reserve returns false if there are not so many. It looks at a number of spans that is bounded
// by n, and goes on there with the next batch.
func (x *Index) reserve(n int, store uint32) bool {
	x.work += x.classes.freeIdle() * workPerClass
	for x.unusedSpans < keepSpans && x.room(0, 0, 1) {
		x.addSpans()
	}
	if x.unusedSpans < keepSpans {
		x.joinSpans(n, store)
	}
	x.fewSpans, x.leaveSpans = x.unusedSpans < spansPerKey*n, mustSplit
	if x.fewSpans {
		x.leaveSpans = n
	}
	return x.unusedSpans >= n // to place a new one, or to evict one behind the chain
}

// joinSpans joins spans until keepSpans are unused or it has looked at as many as a
// batch of n keys may.
func (x *Index) joinSpans(n int, store uint32) {
	for looks := looksPerBatch + looksPerKey*n; looks > 0 && x.unusedSpans < keepSpans; {
		looks -= x.joinNext(x.unusedSpans < spansPerKey*n, store)
	}
}

// joinNext joins two of the next few spans of the log, those used at the closest times.
// If none touch each other it evicts the smallest of them, where evict says so and it is
// a small one. It returns how many spans it has looked at, at least 1.
func (x *Index) joinNext(evict bool, store uint32) int {
	id := int(x.joinAt >> segmentBits)
	if id >= len(x.segments) {
		x.joinAt = 0
		return 1
	}
	seg, from := &x.segments[id], 0
	if i := int(x.joinAt & segmentMask); i > 0 {
		from = seg.ref(i)
	}
	to := min(from+joinWindow, len(seg.spans))
	if x.joinAt = slot(id+1) << segmentBits; to < len(seg.spans) { // and the last of these again
		x.joinAt = slot(id)<<segmentBits + slot(seg.spans[to-1].first)
	}
	if at := x.closest(seg, from, to); at >= 0 {
		x.join(seg, at, store)
	} else if evict {
		x.evictSmallest(seg, from, to, store)
	}
	x.work += (to - from) * workPerSpan
	return max(to-from, 1)
}

// closest returns the place of the first of two touching spans among those from place
// from to to that were used at the closest times, -1 if no two touch.
func (x *Index) closest(seg *segment, from, to int) (at int) {
	at = -1
	least := uint64(0)
	for k := from; k+1 < to; k++ {
		a, b := x.span(seg.spans[k].id), x.span(seg.spans[k+1].id)
		if a.first+slot(a.n) != b.first {
			continue
		}
		apart := uint64(min(a.time-b.time, b.time-a.time)) // one of them has wrapped around
		if a.hot != b.hot {
			apart += 1 << 32 // only if there is no other pair
		}
		if at < 0 || apart < least {
			at, least = k, apart
		}
	}
	return at
}

// join makes one span of the one at a place of a segment's books and the next. It stands
// where the one of them stood that was to be evicted later, so that no entry is evicted
// earlier for it.
func (x *Index) join(seg *segment, at int, store uint32) {
	left, right := seg.spans[at], seg.spans[at+1]
	keep, drop := left.id, right.id
	if x.goesFirst(x.span(keep), x.span(drop)) {
		keep, drop = drop, keep
	}
	x.unlink(drop)
	k, d := x.span(keep), x.span(drop)
	x.list(k.hot).entries += int64(d.n)
	k.first = x.span(left.id).first
	k.n += d.n
	if d.store == store {
		k.store = store
	}
	seg.spans[at+1] = spanRef{left.first, keep}
	x.freeSpan(drop)
	x.dropRefs(seg, at, at+1)
}

// goesFirst tells whether one span is to be evicted before another.
func (x *Index) goesFirst(a, b *span) bool {
	switch {
	case a.hot == b.hot:
		return x.policy.clock-a.time > x.policy.clock-b.time
	case a.hot:
		return !x.policy.coldFirst(b.time, a.time, x.entries)
	}
	return x.policy.coldFirst(a.time, b.time, x.entries)
}

// evictSmallest evicts the smallest of some spans if it is a small one and the given
// store has not placed or used it.
func (x *Index) evictSmallest(seg *segment, from, to int, store uint32) {
	smallest := noSpan
	for _, r := range seg.spans[from:to] {
		s := x.span(r.id)
		if s.n <= smallSpan && s.store != store && (smallest == noSpan || s.n < x.span(smallest).n) {
			smallest = r.id
		}
	}
	if smallest == noSpan {
		return
	}
	for n := int(x.span(smallest).n); n > 0; n -= batchKeys {
		x.evictTail(smallest, batchKeys)
	}
}
