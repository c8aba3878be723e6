package index

import (
	"math/bits"
	"slices"
	"unsafe"
)

// links are what is known of the chains that a segment's keys stand in: the number
// of a key in its chain, and the key in front of it. Both are what stores claim, until
// the hashes of a lookup confirm them.
//
// A chain that lies in order needs two bits a key. Only the first of a run of
// linked slots has a record of its own.
type links struct {
	// linked has bit i set if the key in front of slot i's is in slot i-1, and its
	// number is one less. The first slot of a segment never is.
	linked slotSet
	// sure has bit i set once a lookup has shown slot i's key behind the key that
	// is said to be in front of it, under this number.
	sure slotSet
	// heads are those of each 64 slots, by offset. So adding one moves 63 others at most.
	heads [segmentSlots / 64][]head
}

// head is the record of a slot whose key is not linked. A key without one has no
// known number.
type head struct {
	offset uint16
	open   bool // the key in front is not known
	number uint32
	before uint64 // the hash of the key in front; of no meaning for number 0
}

// link is what is known of one key's place in its chain. The zero value: nothing.
type link struct {
	known  bool
	open   bool
	sure   bool
	number uint32
	before uint64
}

const (
	headBytes = int64(unsafe.Sizeof(head{}))
	// headRoom is how many bytes of heads there may be, for each segment: a head
	// for every sixteenth key. What goes beyond is not known, and costs a lookup by
	// anchors some more hashes.
	headRoom = segmentSlots / 16 * headBytes
	// fewSegments is for how many segments a smaller index has room, too: chains that begin
	// to grow in turn lie in small pieces, each with a head.
	fewSegments = 4
)

// start returns the first slot of the linked run that offset i is in.
func (l *links) start(i int) int { return l.linked.lastAbsent(i) }

// headAt returns where the first head of offset i or more stands among those of 64 slots.
func headAt(heads []head, i int) int {
	at, _ := slices.BinarySearchFunc(heads, i, func(h head, i int) int { return int(h.offset) - i })
	return at
}

// head returns the head of offset i, nil if it has none.
func (l *links) head(i int) *head {
	if i < 0 {
		return nil
	}
	heads := l.heads[i/64]
	if at := headAt(heads, i); at < len(heads) && int(heads[at].offset) == i {
		return &heads[at]
	}
	return nil
}

// number returns the number of the key at offset i, if it is known.
func (l *links) number(i int) (uint32, bool) {
	start := l.start(i)
	h := l.head(start)
	if h == nil {
		return 0, false
	}
	number := uint64(h.number) + uint64(i-start)
	return uint32(number), number < uint64(noNumber)
}

// linkOf returns what is known of the key in a slot.
func (x *Index) linkOf(s slot) link {
	seg, i := x.at(s)
	number, ok := seg.links.number(i)
	if !ok {
		return link{}
	}
	have := link{known: true, number: number, sure: seg.links.sure.has(i)}
	if seg.links.linked.has(i) {
		have.before = x.hash(seg.key(i - 1))
	} else {
		h := seg.links.head(i)
		have.open, have.before = h.open, h.before
	}
	return have
}

// setLink says where the key in a slot stands; of the slot behind it, what was
// known stays known. Under mu, like all that changes links.
func (x *Index) setLink(s slot, to link) {
	x.dropLinks(s, 1)
	seg, i := x.at(s)
	if !to.known {
		return
	}
	if i > 0 && to.number > 0 && !to.open && seg.class[i-1] != noClass {
		if number, ok := seg.links.number(i - 1); ok && number == to.number-1 && x.hash(seg.key(i-1)) == to.before {
			seg.links.linked.set(i, true)
			seg.links.sure.set(i, to.sure)
			return
		}
	}
	if x.addHead(seg, head{offset: uint16(i), open: to.open, number: to.number, before: to.before}) {
		seg.links.sure.set(i, to.sure)
	}
}

// headsRoom is how many bytes of heads an index of so many segments may have.
func headsRoom(segments int64) int64 { return headRoom * max(segments, fewSegments) }

// addHead adds a head to a segment if there is room for it.
func (x *Index) addHead(seg *segment, h head) bool {
	heads := &seg.links.heads[h.offset/64]
	n := len(*heads)
	if n == cap(*heads) {
		more := min(1<<max(bits.Len(uint(n))-3, 0), groupSlots-n) // at most a quarter is idle
		if x.headBytes+int64(more)*headBytes > headsRoom(int64(len(x.segments))) {
			return false
		}
		x.resizeHeads(heads, n+more)
	}
	x.mu.count(n)
	*heads = slices.Insert(*heads, headAt(*heads, int(h.offset)), h)
	return true
}

// dropHeads deletes the heads of offsets from to end-1.
func (x *Index) dropHeads(seg *segment, from, end int) {
	for g := from / 64; g*64 < end; g++ {
		heads := &seg.links.heads[g]
		if len(*heads) == 0 {
			continue
		}
		x.mu.count(len(*heads))
		*heads = slices.Delete(*heads, headAt(*heads, from), headAt(*heads, end))
		if n := len(*heads); n == 0 || cap(*heads) >= 2*n+2 {
			x.resizeHeads(heads, n)
		}
	}
}

// resizeHeads gives a list of heads room for n of them.
func (x *Index) resizeHeads(heads *[]head, n int) {
	x.headBytes += int64(n-cap(*heads)) * headBytes
	if n == 0 {
		*heads = nil
		return
	}
	*heads = append(make([]head, 0, n), *heads...)
}

// dropLinks forgets the links of a stretch of slots within one segment. The keys
// are still there: one that is linked to the last of them is told its hash.
func (x *Index) dropLinks(first slot, n int) {
	seg, i := x.at(first)
	l := &seg.links
	end := i + n
	var next link
	if end < segmentSlots && l.linked.has(end) {
		next = x.linkOf(first + slot(n))
	}
	l.linked.setRange(i, n, false)
	l.sure.setRange(i, n, false)
	x.dropHeads(seg, i, end)
	if end < segmentSlots && l.linked.has(end) {
		l.linked.set(end, false)
		if !next.known || !x.addHead(seg, head{offset: uint16(end), number: next.number, before: next.before}) {
			l.sure.set(end, false)
		}
	}
}

// noNumber is the number of a key whose place in its chain is not known; numbers
// end below it.
const noNumber = ^uint32(0)

// Number says, before the first Store, that the first key is block number of its
// chain and every further one the next block. Without it nothing is learnt of the
// chain.
func (w *Writer) Number(number uint32) {
	w.number = number
	w.numbered = number != noNumber
}

// Before says, after the last Store, which key stands in front of the first. It is of no use
// after Behind. Keys stay where they are: chains that grow in turn are then in more pieces than
// there may be heads, and Trace does not follow them. before is only borrowed.
func (x *Index) Before(w *Writer, before []byte) {
	if !w.numbered || w.firstNumber == 0 || w.hashLen == 0 || len(before) != w.hashLen {
		return
	}
	x.writing.Lock()
	defer x.writing.Unlock()
	x.writing.count(workPerLink)
	key := w.firstKey[:w.hashLen]
	s := x.find(x.hash(key), key)
	if s == noSlot {
		return
	}
	x.mu.Lock()
	x.mu.count(1)
	x.claim(s, link{known: true, number: w.firstNumber, before: x.hash(before)})
	x.mu.Unlock()
}

// claim takes in what a store says of the key in a slot. What is sure stays.
func (x *Index) claim(s slot, said link) {
	have := x.linkOf(s)
	switch {
	case have.sure:
		return
	case have.known && have.number == said.number && (said.open || have.before == said.before && !have.open):
		return
	}
	x.setLink(s, said)
}

// learnChain takes in what a batch, visible already, says of its chain. Keys that
// are new and lie in order are linked by a bit; the others take a closer look.
func (x *Index) learnChain(b *storing, w *Writer, keys []byte, hashLen int) {
	most := b.n
	if left := noNumber - w.number; uint64(most) > uint64(left) { // longer than numbers go
		most, w.numbered = int(left), false
	}
	for i := 0; i < most; i++ {
		s := b.slot[i]
		if s == noSlot {
			continue // stands in the batch twice
		}
		seg, j := x.at(s)
		if i > 0 && j > 0 && s == b.slot[i-1]+1 && seg.links.linked.has(j) {
			continue
		}
		said := link{known: true, number: w.number + uint32(i)}
		switch {
		case i > 0:
			said.before = x.hash(keys[(i-1)*hashLen : i*hashLen])
		case w.hashLen == hashLen:
			said.before = x.hash(w.lastKey[:hashLen])
		default:
			said.open = said.number > 0
		}
		x.claim(s, said)
		if have, ok := seg.links.number(j); ok && have == said.number {
			n := b.newBehind(i, most)
			seg.links.linked.setRange(j+1, n, true)
			i += n
		}
	}
}

// newBehind returns how many new keys lie behind key i of a batch of so many, in its
// segment.
func (b *storing) newBehind(i, most int) int {
	s, n := b.slot[i], 0
	for i+n+1 < most && b.fresh[i+n+1] && b.slot[i+n+1] == s+slot(n)+1 && (s+slot(n)+1)&segmentMask != 0 {
		n++
	}
	return n
}
