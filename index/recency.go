package index

// The recency list orders all entries from the most to the least recently used.
// A chain is touched tail first: its head ends up newest, so that room is made
// at the ends of cold chains and a stored prefix never loses its beginning
// before its end. On a trace of real requests that keeps more hits than touching
// head first (docs/performance.md).

// unlink takes entries out of the list that stand in it one behind the other,
// from first, the newest of them, to last.
func (x *Index) unlink(first, last slot) {
	f, i := x.at(first)
	l, j := x.at(last)
	newer, older := f.newer[i], l.older[j]
	if newer == noSlot {
		x.newest = older
	} else {
		n, k := x.at(newer)
		n.older[k] = older
	}
	if older == noSlot {
		x.oldest = newer
	} else {
		o, k := x.at(older)
		o.newer[k] = newer
	}
}

// linkBehind puts such entries back right behind another one, on its older side;
// with noSlot they become the newest.
func (x *Index) linkBehind(first, last, front slot) {
	older := x.newest
	if front != noSlot {
		f, k := x.at(front)
		older = f.older[k]
		f.older[k] = first
	} else {
		x.newest = first
	}
	f, i := x.at(first)
	l, j := x.at(last)
	f.newer[i], l.older[j] = front, older
	if older == noSlot {
		x.oldest = last
	} else {
		o, k := x.at(older)
		o.newer[k] = last
	}
}

// stretch is a run of slots that a lookup has found.
type stretch struct {
	first slot
	n     uint32
}

const (
	// touchQueue bounds the entries that wait to be touched. Touching them costs a
	// store less than a millisecond where chains lie in order, a few where not.
	touchQueue = 1 << 18
	// touchStretches bounds the stretches that wait, 512 KiB of them.
	touchStretches = 1 << 16
	// touchBatch is how many entries are touched under one hold of the lock: well
	// under a millisecond even when each is a cache miss.
	touchBatch = 4096
)

// noteTouches queues what a lookup has found, tail first.
func (x *Index) noteTouches(found []stretch, epoch uint64) {
	if len(found) == 0 {
		return
	}
	x.touchMu.Lock()
	if x.touchEpoch == epoch {
		for i := len(found) - 1; i >= 0; i-- {
			x.touches = append(x.touches, found[i])
			x.toTouch += int(found[i].n)
		}
	}
	full := x.toTouch > touchQueue || len(x.touches) > touchStretches
	x.touchMu.Unlock()
	if full {
		x.applyTouches()
	}
}

// applyTouches brings the recency list up to date.
func (x *Index) applyTouches() {
	x.lockTouched()
	x.mu.Unlock()
}

// lockTouched takes the write lock with the recency list up to date. It gives the
// lock up between batches, so that nobody waits for a long queue.
func (x *Index) lockTouched() {
	for {
		x.mu.Lock()
		if x.applyTouchBatch(touchBatch) {
			return
		}
		x.mu.Unlock()
	}
}

// applyTouchBatch applies queued touches to at most n entries, under the write
// lock. It returns true when none are left.
func (x *Index) applyTouchBatch(n int) bool {
	x.touchMu.Lock()
	defer x.touchMu.Unlock()
	for x.touched < len(x.touches) {
		t := &x.touches[x.touched]
		for t.n > 0 && n > 0 {
			moved := x.touchTail(*t, n)
			t.n -= uint32(moved)
			x.toTouch -= moved
			n -= moved
		}
		if t.n > 0 {
			return false
		}
		x.touched++
	}
	x.touches, x.touched = x.touches[:0], 0
	return true
}

// touchTail makes the end of a stretch, at most n entries of it, the newest
// entries, the front one newest, and returns how many. A chain that was stored or
// used before stands in the list as it lies in the log, so it is moved whole.
//
// Entries may have been evicted since they were found: a free slot is passed over,
// and one that holds another key by now is touched in its place, which is
// harmless.
func (x *Index) touchTail(t stretch, n int) int {
	last := t.first + slot(t.n) - 1
	id := int(last >> segmentBits)
	if id >= len(x.segments) || x.segments[id] == nil {
		return min(int(t.n), n, int(last&segmentMask)+1)
	}
	seg, j := x.at(last)
	i := j
	for least := j + 1 - min(int(t.n), n, j+1); i > least && seg.older[i-1] == last-slot(j-i); i-- {
	}
	first := last - slot(j-i)
	if seg.class[j] != noClass && x.newest != first {
		x.unlink(first, last)
		x.linkBehind(first, last, noSlot)
	}
	return j - i + 1
}
