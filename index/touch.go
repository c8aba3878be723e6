package index

// What lookups find is queued and applied by writers, so that no lookup changes
// the order of eviction by itself.

// stretch is n consecutive slots of which a lookup has found every slotStride-th, from the first on.
// All of them count as used.
type stretch struct {
	first      slot
	n          uint32
	slotStride uint32
}

// found reports whether the lookup has found slot s.
func (t stretch) found(s slot) bool {
	return s >= t.first && uint32(s-t.first) < t.n && uint32(s-t.first)%t.slotStride == 0
}

const (
	stretchBytes = 12
	// touchMost bounds all queues together, to 384 KiB; what does not fit is dropped. Lookups
	// help to apply what waits if their queue is half full.
	touchMost = 1 << 15
	// touchBatch is how many stretches or spans in them are used under one hold of the
	// writers' lock: some ten microseconds.
	touchBatch = 256
	// touchStore is how many a batch of stores uses before it chooses what to evict:
	// all there are in practice, and a tenth of a millisecond at most.
	touchStore = 1024
)

// queueTouches queues what a lookup has found, tail first. When the queue is long
// and no writer is at it, the lookup applies as much as it brought.
func (x *Index) queueTouches(found []stretch, epoch uint64) {
	if len(found) == 0 {
		return
	}
	r := x.mu.pool.Get().(*readerStripe)
	most := touchMost / len(x.mu.stripes)
	r.touchMu.Lock()
	if x.epoch.Load() == epoch {
		r.touchMu.count(len(found))
		if cap(r.touches)-len(r.touches) < len(found) {
			r.touchMu.count(len(r.touches))
		}
		for i := len(found) - 1; i >= 0 && len(r.touches) < most; i-- {
			r.touches = append(r.touches, found[i])
		}
	}
	long := len(r.touches) > most/2
	r.touchMu.Unlock()
	x.mu.pool.Put(r)
	if long && x.writing.TryLock() {
		x.applyTouches(touchBatch)
		x.writing.Unlock()
	}
}

// applyTouches applies stretches until at least n of them, or as many spans in them,
// are used. It returns false when some are left.
func (x *Index) applyTouches(n int) bool {
	for n > 0 {
		if x.touched == len(x.touching) && !x.takeTouches() {
			return true
		}
		x.moved = 0
		if t := &x.touching[x.touched]; x.touch(t) {
			x.touched++
		}
		n -= max(1, x.moved)
	}
	return x.touched == len(x.touching)
}

// takeTouches exchanges the next queue that is not empty for the one that has been applied.
// Lookups in one queue are applied in their order, those in several in the order of the
// queues.
func (x *Index) takeTouches() bool {
	for range x.mu.stripes {
		x.emptied = (x.emptied + 1) % len(x.mu.stripes)
		r := &x.mu.stripes[x.emptied]
		r.touchMu.Lock()
		x.touching, r.touches = r.touches, x.touching[:0]
		r.touchMu.Unlock()
		if x.touched = 0; len(x.touching) > 0 {
			return true
		}
	}
	return false
}

// touch uses the last entries of a stretch that are left, of one segment and at most
// touchBatch spans, and tells whether that was all. They may have been evicted since they
// were found, and other keys may be there by now: those are used in their place, which is
// harmless.
func (x *Index) touch(t *stretch) (all bool) {
	last := t.first + slot(t.n) - 1
	n := min(t.n, uint32(last&segmentMask)+1)
	if x.valid(last) != noSlot {
		seg, i := x.at(last)
		if at := seg.ref(i + 1); at > touchBatch { // spans that begin up to last
			n = min(n, uint32(i+1)-uint32(seg.spans[at-touchBatch].first))
		}
		x.use(last-slot(n)+1, int(n), noSpan, 0)
	}
	t.n -= n
	return t.n == 0
}
