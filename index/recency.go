package index

// The recency list orders all entries from the most to the least recently used.
// A chain is touched tail first: its head ends up newest, so that room is made
// at the ends of cold chains and a stored prefix never loses its beginning
// before its end. On a trace of real requests that keeps more hits than touching
// head first (docs/performance.md).

// unlink takes an entry out of the list.
func (x *Index) unlink(s slot) {
	seg, i := x.at(s)
	newer, older := seg.newer[i], seg.older[i]
	if newer == noSlot {
		x.newest = older
	} else {
		n, j := x.at(newer)
		n.older[j] = older
	}
	if older == noSlot {
		x.oldest = newer
	} else {
		o, j := x.at(older)
		o.newer[j] = newer
	}
}

// linkBehind puts an entry right behind another one, on its older side; with
// noSlot it becomes the newest.
func (x *Index) linkBehind(s, front slot) {
	older := x.newest
	if front != noSlot {
		f, j := x.at(front)
		older = f.older[j]
		f.older[j] = s
	} else {
		x.newest = s
	}
	seg, i := x.at(s)
	seg.newer[i], seg.older[i] = front, older
	if older == noSlot {
		x.oldest = s
	} else {
		o, j := x.at(older)
		o.newer[j] = s
	}
}

// touch makes an entry the newest.
func (x *Index) touch(s slot) {
	if x.newest != s {
		x.unlink(s)
		x.linkBehind(s, noSlot)
	}
}

// stretch is a run of slots that a lookup has found.
type stretch struct {
	first slot
	n     uint32
}

const (
	// touchQueue bounds the stretches that wait to be applied, 512 KiB of them.
	touchQueue = 1 << 16
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
		}
	}
	full := len(x.touches) >= touchQueue
	x.touchMu.Unlock()
	if full {
		x.applyTouches()
	}
}

// applyTouches brings the recency list up to date, in batches of bounded length.
func (x *Index) applyTouches() {
	for {
		x.mu.Lock()
		done := x.applyTouchBatch(touchBatch)
		x.mu.Unlock()
		if done {
			return
		}
	}
}

// applyTouchBatch applies queued touches to at most n entries, under the write
// lock. It returns true when none are left.
func (x *Index) applyTouchBatch(n int) bool {
	x.touchMu.Lock()
	defer x.touchMu.Unlock()
	for x.touched < len(x.touches) {
		t := &x.touches[x.touched]
		for ; t.n > 0 && n > 0; n-- {
			t.n--
			x.touchIfLive(t.first + slot(t.n))
		}
		if t.n > 0 {
			return false
		}
		x.touched++
	}
	x.touches, x.touched = x.touches[:0], 0
	return true
}

// touchIfLive touches an entry unless it was evicted since it was found. A slot
// that holds another key by now is touched in its place, which is harmless.
func (x *Index) touchIfLive(s slot) {
	id := int(s >> segmentBits)
	if id >= len(x.segments) || x.segments[id] == nil {
		return
	}
	if seg, i := x.at(s); seg.class[i] != noClass {
		x.touch(s)
	}
}
