package index

// Decoding engines store blocks one by one, and many chains grow in turn. So that the keys
// of each lie in order, the slots behind a chain's newest key are preallocated for it, as file
// systems preallocate space behind the end of a file. The next key of the chain then needs no
// head and no span. Unused slots are reclaimed before entries are evicted for others, and if
// too many are preallocated: first those of chains that have not grown for long.

// preallocation is a stretch of slots within one segment that was preallocated for one chain.
type preallocation struct {
	first slot
	n     uint16
	left  uint16 // slots that were not taken when reclaim last looked at it
}

// preallocations is a queue, oldest first. Some have no slots left.
type preallocations struct {
	slots      int64           // that are preallocated and not taken
	queue      []preallocation // of maxPreallocations, once there is one
	first, end uint32          // modulo the size of the queue
}

const (
	// maxPreallocations is how many chains may grow in turn and stay in order.
	maxPreallocations = 1 << 10
	// preallocShare is the part of all slots that may be preallocated: a quarter.
	preallocShare = 4
	// leastPrealloc and mostPrealloc bound how many slots are preallocated for one chain at a
	// time: as many as it has keys, up to 64, or a quarter of its keys if that is more. So for
	// a long chain they are a small part of what it takes. From 64 on they are whole groups.
	leastPrealloc, mostPrealloc = 16, 256
	// mostJoining is how many keys a batch may have to be put behind the chain's newest key.
	// Longer ones take free slots wherever they are.
	mostJoining = 16
	// secondChances is how many preallocations reclaim passes over because their chains have
	// grown.
	secondChances = 8
)

// bytes is the memory of the queue in bytes.
func (q *preallocations) bytes() int64 { return 8 * int64(len(q.queue)) }

func (q *preallocations) push(p preallocation) {
	if q.queue == nil {
		q.queue = make([]preallocation, maxPreallocations)
	}
	q.queue[q.end%maxPreallocations] = p
	q.end++
}

// Behind says, before the first Store, which key stands in front of the first. If that key is
// in the index and the newest of its chain, a few keys are put behind it in the log. Like
// Index.Before, it tells the link of the first key, if Number was called. Call Number first. An
// empty before, and that of block 0, is ignored. before is only borrowed.
func (w *Writer) Behind(before []byte) {
	if w.numbered && w.number == 0 || len(before) == 0 || len(before) > maxHashLen {
		return
	}
	w.hashLen = copy(w.lastKey[:], before)
	w.last, w.behind = noSlot, true
}

// findNewest finds the key of Behind. If the new keys are to be put behind it, its span becomes
// the newest of its list.
func (x *Index) findNewest(b *storing, w *Writer) {
	w.behind = false
	key := w.lastKey[:w.hashLen]
	x.work += workPerKey
	s := x.find(x.hash(key), key)
	w.last = s
	if s == noSlot || b.n > mostJoining {
		return
	}
	seg, i := x.at(s)
	if i+1 < segmentSlots && seg.links.linked.has(i+1) {
		return // another key is behind it
	}
	id := x.spanOf(s)
	n := min(int(x.span(id).n), 64)
	if w.numbered {
		if number, ok := seg.links.number(i); ok && number != w.number-1 {
			return
		}
		n = int(w.number)
	}
	b.newest = s
	if n = max(min(n, 64), n/4, leastPrealloc); n >= 64 {
		n = min(n, mostPrealloc) &^ 63
	}
	b.preallocate = n
	x.renew(id, x.span(id).store)
}

// takeBehind takes a slot for the key behind the one in slot newest: the next slot if that is
// preallocated for the chain or free, otherwise the first of a free stretch. If it was not
// preallocated, the stretch of up to n slots that begins with it is. The caller knows that there
// are free slots for all of its keys, and enough of them stay free for the rest.
func (x *Index) takeBehind(newest slot, n int) slot {
	s := newest + 1
	seg, i := x.at(newest)
	i++
	if i < segmentSlots && seg.prealloc.has(i) {
		seg.prealloc.set(i, false)
		x.prealloc.slots--
		return s
	}
	x.work += workPerPrealloc
	n = x.limitPrealloc(n)
	if i < segmentSlots && !seg.used.has(i) {
		x.preallocate(s, min(n, seg.used.firstPresent(i)-i))
		return s
	}
	if int(x.free) < n+mostJoining && !x.evicting {
		x.grow()
	}
	if n >= 64 || int(x.open.end-x.open.at) < n {
		if first, groups := x.freeGroups((n + 63) / 64); groups > 0 {
			x.preallocate(first, min(n, groups*64))
			return first
		}
	}
	if x.open.at == x.open.end {
		x.openNext()
	}
	s = x.open.at
	x.preallocate(s, min(n, int(x.open.end-s)))
	return s
}

// limitPrealloc returns how many of n slots may be taken and preallocated, at least one. It
// reclaims others to make that more.
func (x *Index) limitPrealloc(n int) int {
	most := x.slots / preallocShare
	if x.evicting { // half of what is kept free
		most = (x.free + x.prealloc.slots) / 2
	}
	n = max(min(n, int(most/64)), 1)
	for x.prealloc.slots+int64(n-1) > most && x.reclaim() {
		continue
	}
	return n
}

// preallocate takes the first of n free slots and preallocates the others, but for those that
// the rest of the batch may need.
func (x *Index) preallocate(first slot, n int) {
	n = max(min(n, int(x.free)-mostJoining), 1)
	x.useSlots(first, n)
	seg, i := x.at(first)
	seg.prealloc.setRange(i+1, n-1, true)
	x.prealloc.slots += int64(n - 1)
	if o := &x.open; first > o.at {
		o.end = min(o.end, first)
	} else if end := first + slot(n); end > o.at {
		o.at = min(end, o.end)
	}
	q := &x.prealloc
	if q.end-q.first == maxPreallocations {
		x.reclaim()
	}
	if n > 1 {
		q.push(preallocation{first, uint16(n), uint16(n - 1)})
	}
}

// freeGroups finds at most n groups of 64 free slots that follow each other: further up in the
// segment at hand, or else in one of those that have the most free slots.
func (x *Index) freeGroups(n int) (first slot, groups int) {
	for _, s := range [...]slot{x.open.at, slot(x.freeSegments.emptiest()) << segmentBits} {
		if x.valid(s) == noSlot {
			continue
		}
		seg, i := x.at(s)
		for word := (i + 63) / 64; word < segmentSlots/64; word++ {
			if seg.used.words[word] != 0 {
				continue
			}
			for groups < n && word+groups < segmentSlots/64 && seg.used.words[word+groups] == 0 {
				groups++
			}
			return s&^segmentMask + slot(64*word), groups
		}
	}
	return noSlot, 0
}

// reclaim frees the preallocated slots of one chain, the one whose preallocation is the oldest.
// It passes over some that have grown since it last looked at them. It returns false if no slot
// is preallocated.
func (x *Index) reclaim() bool {
	q := &x.prealloc
	for chances := secondChances; q.first != q.end; {
		p := q.queue[q.first%maxPreallocations]
		q.first++
		x.work += workPerReclaim + int(p.n)/2
		seg, i := x.at(p.first)
		left := 0
		for _, n := range seg.prealloc.runs(i, i+int(p.n)) {
			left += n
		}
		if left == 0 {
			continue
		}
		if left < int(p.left) && chances > 0 {
			chances--
			p.left = uint16(left)
			q.push(p)
			continue
		}
		for at, n := range seg.prealloc.runs(i, i+int(p.n)) {
			seg.prealloc.setRange(at, n, false)
			x.freeSlots(p.first+slot(at-i), n)
		}
		q.slots -= int64(left)
		return true
	}
	return false
}
