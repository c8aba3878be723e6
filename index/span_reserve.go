package index

// Spans take memory that the log cannot give back. So a part of the byte bound is kept
// for them. Chunks of spans that are not needed any more are released.

const (
	// slotsPerSpan is for how many slots of the log there is always room for one span:
	// below that no use is told from that of its neighbours.
	slotsPerSpan = 128
	// keepSpans is how many unused spans a batch of changes leaves to lookups and to the
	// next batch.
	keepSpans = 2 * spareSpans
)

// leastChunks is how many chunks of spans a log of so many slots has room for, whatever
// else there is.
func leastChunks(slots int64) int { return int(slots/slotsPerSpan/spanChunk) + 1 }

// reserve sees to unused spans for a batch of at most n keys, and returns for how many
// keys there are enough. Where the byte bound leaves no room for more spans, it joins
// some. If that does not help at once the batch does with fewer: it moves no keys, and
// splits spans only while one for each key is left. It looks at a number of spans that is
// bounded by n, and goes on there with the next batch. It returns 0 if it finds none.
func (x *Index) reserve(n int, store uint32) int {
	x.work += x.classes.freeIdle() * workPerClass
	x.drainChunk(spansPerKey * n)
	for x.unusedSpans < keepSpans && x.room(0, 0, 1) {
		x.addSpans()
	}
	if x.unusedSpans < keepSpans && len(x.segments) > 0 {
		x.joinSpans(n, store)
	}
	n = min(n, x.unusedSpans)
	x.fewSpans, x.leaveSpans = x.unusedSpans < max(spansPerKey*n, 1), mustSplit
	if x.fewSpans {
		x.leaveSpans = n
	}
	return n
}

// drainChunk releases the memory of spans that were needed for entries that are gone, as of
// many blocks that were stored one by one. It looks at the next n spans of the last chunk. Those
// that are used are moved to other chunks.
func (x *Index) drainChunk(n int) {
	last := len(x.spans) - 1
	switch {
	case x.drained == 0 && x.unusedSpans <= 2*spanChunk+len(x.spans)*spanChunk/4:
		return
	case x.unusedSpans <= spanChunk+spareSpans: // too few outside of the chunk
		x.keepChunk()
		return
	}
	x.work += n
	for ; n > 0 && x.drained < spanChunk; n-- {
		id := spanID(last)<<spanChunkBits + x.drained
		x.drained++
		if x.span(id).mark != markUnused {
			x.moveSpan(id)
		} else if !x.span(id).keptOut() {
			x.keepOut(id)
		}
	}
	if x.drained == spanChunk {
		x.spans[last] = nil
		x.spans, x.drained = x.spans[:last], 0
	}
}

// moveSpan makes a span of the last chunk one of another chunk.
func (x *Index) moveSpan(id spanID) {
	x.work += workPerSpan
	for x.unused.newest>>spanChunkBits == id>>spanChunkBits {
		x.keepOut(x.unused.newest)
	}
	to := x.newSpan(mustSplit)
	s := *x.span(id)
	before := s.newer
	x.unlink(id)
	*x.span(to) = s
	x.link(to, before)
	seg, i := x.at(s.first)
	seg.spans[seg.ref(i)].id = to
	*x.span(id) = span{n: keptOut}
}

// keptOut, as the number of entries, tells that an unused span is not in the list.
const keptOut = 1

func (s *span) keptOut() bool { return s.mark == markUnused && s.n == keptOut }

// keepOut takes an unused span out of use.
func (x *Index) keepOut(id spanID) {
	x.unlistUnused(id)
	x.span(id).n = keptOut
}

// keepChunk stops draining the last chunk.
func (x *Index) keepChunk() {
	x.drained = 0
	for i := range spanID(spanChunk) {
		if id := spanID(len(x.spans)-1)<<spanChunkBits + i; x.span(id).keptOut() {
			x.freeSpan(id)
		}
	}
}
