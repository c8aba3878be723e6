package index

import "math/bits"

// Decoding engines store blocks one by one, and many chains grow in turn. So that the keys
// of each lie in order, the slots behind a chain's newest key are set aside for it, as file
// systems preallocate space behind the end of a file. The next key of the chain needs no
// head then, and no span. Slots that are not used go back before anything is evicted for
// others, and where there are too many: first those of chains that have not grown for long.

// preallocation is a stretch of slots within one segment that was set aside for one chain.
type preallocation struct {
	first slot
	n     uint16
	left  uint16 // slots that were not taken when it was last looked at
}

// preallocations is a queue, oldest first. Some have no slots left.
type preallocations struct {
	slots      int64 // that are set aside
	queue      *[maxPreallocations]preallocation
	first, end uint32 // modulo the size of the queue
}

const (
	// maxPreallocations is how many chains that grow in turn stay in order.
	maxPreallocations = 1 << 10
	// preallocShare is the part of the slots that is set aside at most, an eighth.
	preallocShare = 8
	// leastPrealloc and mostPrealloc are how many slots are set aside for one chain: as many
	// as it has keys, up to 64, and a quarter as many if that is more. Then what is set aside
	// is a small part of what the chain takes. From 64 on these are whole groups.
	leastPrealloc, mostPrealloc = 4, 256
	// mostJoining is how many keys a store may have for the chain to be one that grows bit
	// by bit. Longer stores go where all the free slots are.
	mostJoining = 16
	// secondChances is how many preallocations that are in use reclaim passes over.
	secondChances = 8
)

// bytes is the memory of the queue.
func (q *preallocations) bytes() int64 {
	if q.queue == nil {
		return 0
	}
	return maxPreallocations * 8
}

func (q *preallocations) push(p preallocation) {
	if q.queue == nil {
		q.queue = new([maxPreallocations]preallocation)
	}
	q.queue[q.end%maxPreallocations] = p
	q.end++
}

// Behind says, before the first Store, which key stands in front of the first. If that is
// there, the newest of its chain, and few keys are stored, they are put behind it in the
// log. Without Number nothing is learnt of the chain. Call it after Number. before is only
// borrowed.
func (w *Writer) Behind(before []byte) {
	if w.numbered && w.number == 0 || len(before) == 0 || len(before) > maxHashLen {
		return
	}
	w.hashLen = copy(w.lastKey[:], before)
	w.last, w.behind = noSlot, true
}

// findNewest finds the key that the store goes on behind. If the new keys are to join it,
// all that were used with it become the newest of their list.
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
		if number, ok := seg.links.number(i); !ok || number != w.number-1 {
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

// spanOf returns the span that a slot is in, noSpan if there is none.
func (x *Index) spanOf(s slot) spanID {
	seg, i := x.at(s)
	at := seg.ref(i+1) - 1
	if at < 0 || i >= int(seg.spans[at].first)+int(x.span(seg.spans[at].id).n) {
		return noSpan
	}
	return seg.spans[at].id
}

// takeBehind returns a slot for the key behind the one in slot newest: the next slot if it is
// set aside for the chain or free. Otherwise it is the first of a free stretch. n is how many slots
// are set aside together with it. The caller knows that there are free slots for all of its keys,
// and this leaves as many.
func (x *Index) takeBehind(newest slot, n int) slot {
	s := newest + 1
	seg, i := x.at(newest)
	i++
	if i < segmentSlots && seg.prealloc[i/64]>>(i%64)&1 == 1 {
		seg.prealloc[i/64] &^= 1 << (i % 64)
		x.prealloc.slots--
		return s
	}
	x.work += workPerPrealloc
	n = x.limitPrealloc(n)
	if i < segmentSlots && seg.used[i/64]>>(i%64)&1 == 0 {
		_, end := seg.freeFrom(i)
		x.preallocate(s, min(n, end-i))
		return s
	}
	if first, groups := x.freeGroups(n / 64); groups > 0 {
		x.preallocate(first, groups*64)
		return first
	}
	if x.open.at == x.open.end {
		x.openNext()
	}
	s = x.open.at
	x.preallocate(s, min(n, int(x.open.end-s)))
	return s
}

// limitPrealloc returns how many of n slots may be taken and set aside, at least one.
func (x *Index) limitPrealloc(n int) int {
	most := x.slots / preallocShare
	if x.evicting { // half of what is kept free
		most = (x.free + x.prealloc.slots) / 2
	}
	n = max(min(n, int(most/32), int(x.free)-mostJoining), 1)
	for x.prealloc.slots+int64(n-1) > most && x.reclaim() {
		continue
	}
	return n
}

// preallocate takes the first of n free slots and sets the others aside.
func (x *Index) preallocate(first slot, n int) {
	seg, i := x.at(first)
	for j := i; j < i+n; j++ {
		seg.used[j/64] |= 1 << (j % 64)
		seg.prealloc[j/64] |= 1 << (j % 64)
	}
	seg.prealloc[i/64] &^= 1 << (i % 64)
	seg.free -= n
	x.free -= int64(n)
	x.prealloc.slots += int64(n - 1)
	x.relist(int(first >> segmentBits))
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
	if n == 0 {
		return noSlot, 0
	}
	id := int(x.freeSegments.first[bits.Len64(x.freeSegments.some)])
	for _, s := range [...]slot{x.open.at, slot(id) << segmentBits} {
		if x.valid(s) == noSlot {
			continue
		}
		seg, i := x.at(s)
		for word := (i + 63) / 64; word < segmentSlots/64; word++ {
			if seg.used[word] != 0 {
				continue
			}
			for groups < n && word+groups < segmentSlots/64 && seg.used[word+groups] == 0 {
				groups++
			}
			return s&^segmentMask + slot(64*word), groups
		}
	}
	return noSlot, 0
}

// reclaim makes the slots free that are set aside for a chain that has not grown for long. It
// returns false if there are none.
func (x *Index) reclaim() bool {
	q := &x.prealloc
	for chances := secondChances; q.first != q.end; {
		p := q.queue[q.first%maxPreallocations]
		q.first++
		seg, i := x.at(p.first)
		left := 0
		for j := i; j < i+int(p.n); j++ {
			left += int(seg.prealloc[j/64] >> (j % 64) & 1)
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
		for j := i; j < i+int(p.n); j++ {
			bit := seg.prealloc[j/64] & (1 << (j % 64))
			seg.prealloc[j/64] &^= bit
			seg.used[j/64] &^= bit
		}
		seg.free += left
		x.free += int64(left)
		q.slots -= int64(left)
		x.relist(int(p.first >> segmentBits))
		return true
	}
	return false
}
