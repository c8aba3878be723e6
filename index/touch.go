package index

// What lookups find is queued and applied by writers, so that no lookup changes
// the order of eviction by itself.

// stretch is n consecutive slots that count as used: a lookup has found them, or every k-th of them.
type stretch struct {
	first slot
	n     uint32
}

const (
	stretchBytes = 8
	// maxTouches bounds all queues together, to 256 KiB; what does not fit is dropped. Lookups
	// help to apply what waits if their queue is half full.
	maxTouches = 1 << 15
	// touchBatch is how many stretches, or segments of them, are used under one hold of the
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
	room := maxTouches / len(x.mu.stripes)
	r.touchMu.Lock()
	if x.epoch.Load() == epoch {
		for i := len(found) - 1; i >= 0 && len(r.touches) < room; i-- {
			r.touches = append(r.touches, found[i])
		}
	}
	long := len(r.touches) > room/2
	r.touchMu.Unlock()
	x.mu.pool.Put(r)
	if long && x.writing.TryLock() {
		x.applyTouches(touchBatch)
		x.writing.Unlock()
	}
}

// applyTouches applies n stretches, or n segments of them. It returns false when some are left.
func (x *Index) applyTouches(n int) bool {
	for ; n > 0; n-- {
		if x.touched == len(x.touching) && !x.takeTouches() {
			return true
		}
		if x.applyTouch(&x.touching[x.touched]) {
			x.touched++
		}
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

// applyTouch marks the last slots of a stretch that are left as used, those of one segment, and reports whether
// that was all. Their entries may have been evicted since they were found, and other keys may be there by now:
// those are marked in their place, which is harmless.
func (x *Index) applyTouch(t *stretch) (all bool) {
	last := t.first + slot(t.n) - 1
	n := min(t.n, uint32(last&segmentMask)+1)
	if x.valid(last) != noSlot {
		// Until the next store the order of uses does not matter: marking a row once is enough, and lookups
		// on other cores keep what they have read.
		seg, i := x.at(last)
		if seg.lastUse[i/rowSlots] < x.storeAt || seg.lastUse[(i-int(n)+1)/rowSlots] < x.storeAt {
			x.markUsed(last-slot(n)+1, int(n), x.nextUse())
		}
	}
	t.n -= n
	return t.n == 0
}
