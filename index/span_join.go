package index

// Where the memory of spans is used up, neighbours in the log are joined that were used at
// about the same time.

const (
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

// joinSpans joins spans until keepSpans are unused or it has looked at as many as a
// batch of n keys may. If not a single one is unused then, it evicts the smallest of
// those it has looked at, if that is a small one, it is for a store, and that has not placed
// or used it.
func (x *Index) joinSpans(n int, store uint32) {
	smallest := noSpan
	for looks := looksPerBatch + looksPerKey*n; looks > 0 && x.unusedSpans < keepSpans; {
		seg, from, to := x.nextSpans()
		looks -= max(to-from, 1)
		x.work += max(to-from, 1) * workPerSpan
		if at := x.closest(seg, from, to); at >= 0 {
			x.join(seg, at, store)
			continue
		}
		for k := from; k < to; k++ {
			s := x.span(seg.spans[k].id)
			if s.n <= smallSpan && s.store != store && (smallest == noSpan || s.n < x.span(smallest).n) {
				smallest = seg.spans[k].id
			}
		}
	}
	if x.unusedSpans > 0 || smallest == noSpan || store == noStore {
		return
	}
	for n := int(x.span(smallest).n); n > 0; n -= batchKeys {
		x.evictTail(smallest, batchKeys)
	}
}

// nextSpans returns the next joinWindow spans of the log, or fewer up to the end of a
// segment, by their places in its books. The last of them is the first of the next.
func (x *Index) nextSpans() (seg *segment, from, to int) {
	if int(x.joinAt>>segmentBits) >= len(x.segments) {
		x.joinAt = 0
	}
	seg, i := x.at(x.joinAt)
	from = seg.ref(i)
	if to = min(from+joinWindow, len(seg.spans)); to < len(seg.spans) {
		x.joinAt += slot(int(seg.spans[to-1].first) - i)
	} else {
		x.joinAt = x.joinAt&^segmentMask + segmentSlots
	}
	return seg, from, to
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
	k.first = x.span(left.id).first
	k.n += d.n
	k.mark = min(k.mark, d.mark)
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

// placeBeside enters a stretch of new entries into the span that ends in front of it, which
// becomes the newest of its list with them. It returns noSpan if none does.
func (x *Index) placeBeside(first slot, n int, store uint32) spanID {
	if first&segmentMask == 0 {
		return noSpan
	}
	id := x.spanOf(first - 1)
	if id != noSpan {
		x.span(id).n += uint16(n)
		x.span(id).mark = markUsed
		x.renew(id, store)
	}
	return id
}

// fillHole moves the last entry of a span to slot s, within the span, whose own entry is
// gone, so that the span need not be split. It returns the slot that is free then: s, or
// that of the moved entry. Resets of places look at s again.
func (x *Index) fillHole(s slot) slot {
	seg, i := x.at(s)
	sp := x.span(x.spanOf(s))
	last := sp.first + slot(sp.n) - 1
	if s == sp.first || s == last {
		return s
	}
	from, k := x.at(last)
	copy(seg.key(i), from.key(k)) // readers do not look at a slot that has no class
	hash, link := x.hash(seg.key(i)), x.linkOf(last)
	x.mu.Lock()
	x.mu.count(1)
	x.moveEntry(last, s, hash, link)
	x.mu.Unlock()
	for _, r := range x.resetting {
		if last >= r.at { // it has not looked at the entry yet
			r.at = min(r.at, s)
		}
	}
	return last
}
