package index

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/hitline/hitline/simd"
)

// links are what is known of the chains that a segment's keys stand in: the number
// of a key in its chain, and the key in front of it. Both come from those who
// store and are hearsay, until the hashes of a lookup confirm them.
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

// slotSet is a set of a segment's slots. Of a chain that lies in order nearly all
// words are full, so that one more word tells where the next one is that is not.
type slotSet struct {
	full  uint64 // bit w: word w has all bits set
	words [segmentSlots / 64]uint64
}

func (s *slotSet) has(i int) bool { return s.words[i/64]>>(i%64)&1 == 1 }

func (s *slotSet) set(i int, value bool) { s.setRange(i, 1, value) }

// setRange sets, or clears, n slots from i on.
func (s *slotSet) setRange(i, n int, value bool) {
	for end := i + n; i < end; {
		word := i / 64
		take := min(64-i%64, end-i)
		mask := ^uint64(0) >> (64 - take) << (i % 64)
		i += take
		if !value {
			s.words[word] &^= mask
			s.full &^= 1 << word
		} else if s.words[word] |= mask; s.words[word] == ^uint64(0) {
			s.full |= 1 << word
		}
	}
}

// lastAbsent returns the last slot up to i that is not in the set, -1 if there is
// none.
func (s *slotSet) lastAbsent(i int) int {
	word := i / 64
	if w := ^s.words[word] & (^uint64(0) >> (63 - i%64)); w != 0 {
		return word*64 + 63 - bits.LeadingZeros64(w)
	}
	before := ^s.full & (1<<word - 1)
	if before == 0 {
		return -1
	}
	word = 63 - bits.LeadingZeros64(before)
	return word*64 + 63 - bits.LeadingZeros64(^s.words[word])
}

// start returns the first slot of the linked run that offset i is in.
func (l *links) start(i int) int { return l.linked.lastAbsent(i) }

// lastUnsure returns the last slot of [from, to] that is not sure, from-1 if all
// are.
func (l *links) lastUnsure(from, to int) int { return max(l.sure.lastAbsent(to), from-1) }

// firstAbsent returns the first slot from i on that is not in the set, segmentSlots if there
// is none.
func (s *slotSet) firstAbsent(i int) int {
	if i >= segmentSlots {
		return segmentSlots
	}
	word := i / 64
	if w := ^s.words[word] >> (i % 64); w != 0 {
		return i + bits.TrailingZeros64(w)
	}
	behind := ^s.full &^ (2<<word - 1)
	if behind == 0 {
		return segmentSlots
	}
	word = bits.TrailingZeros64(behind)
	return word*64 + bits.TrailingZeros64(^s.words[word])
}

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

// Confirm takes note that a lookup has shown keys to be blocks number, number+1 and
// so on of one chain, behind the block before (of no meaning for block 0). Where a
// store has said the same, Trace follows their links from now on. Lookups whose
// lists are equal at one block must be equal in front of it; it is on them that
// the exactness of Trace rests, not on the stores. number+len(keys)/hashLen must
// not exceed 2^32-1. It ends at a key that is not there, and returns false then. work is
// what it has cost, see Cursor.Work. before and keys are only borrowed.
func (x *Index) Confirm(number uint32, before, keys []byte, hashLen int) (all bool, work int) {
	if hashLen < 1 || hashLen > maxHashLen || number > 0 && len(before) != hashLen {
		return false, workPerCall
	}
	for write := false; len(keys) >= hashLen; write = !write {
		n, there, cost := x.confirmSome(number, before, keys, hashLen, write)
		if work += workPerCall + cost; !there {
			return false, work
		}
		if n > 0 {
			number += uint32(n)
			before = keys[(n-1)*hashLen : n*hashLen]
			keys = keys[n*hashLen:]
		}
	}
	return true, work
}

// confirmSome goes through keys from the first on, run by run of the log, and returns how
// many it has been through, whether it met none that is not there, and the work. As a writer
// it makes them sure, for about as long as a batch of stores takes. As a reader it goes on
// while nothing is to change, and leaves the rest to a writer.
func (x *Index) confirmSome(number uint32, before, keys []byte, hashLen int, write bool) (done int, there bool, work int) {
	var r *readerStripe
	if write {
		x.writing.Lock()
		defer x.writing.Unlock()
	} else {
		r = x.mu.RLock()
		defer x.mu.RUnlock(r)
	}
	for hold := holdWork; len(keys) >= hashLen; {
		if work >= hold {
			if write {
				break
			}
			x.mu.pass(r)
			hold = work + holdWork
		}
		key := keys[:hashLen:hashLen]
		s := x.find(x.hash(key), key)
		if s == noSlot {
			return done, false, work + workPerLink
		}
		n := 1
		if x.said(s, number, before) {
			n = x.confirmRun(s, keys, write)
		}
		work += workPerLink + n
		if write {
			x.writing.count(workPerLink + n)
		} else {
			r.countRead(workPerLink + n)
		}
		if n == 0 {
			break
		}
		done, number = done+n, number+uint32(n)
		before = keys[(n-1)*hashLen : n*hashLen]
		keys = keys[n*hashLen:]
	}
	return done, true, work
}

// confirmRun makes a key sure and those that are linked behind it, as far as they
// are these, and returns how many that are. A reader only counts those that are sure.
func (x *Index) confirmRun(s slot, keys []byte, write bool) int {
	seg, i := x.at(s)
	l := &seg.links
	end := min(l.linked.firstAbsent(i+1), i+len(keys)/seg.hashLen)
	if !write {
		end = min(end, l.sure.firstAbsent(i))
	}
	n := simd.EqualPrefix(seg.records(i, end-i), keys, seg.hashLen)
	if !write || l.lastUnsure(i, i+n-1) < i {
		return n
	}
	x.mu.Lock()
	x.mu.count(n/64 + 1) // of words
	l.sure.setRange(i, n, true)
	x.mu.Unlock()
	return n
}

// said tells whether the key in a slot is said to be block number, behind the block
// before, and that is either sure or what Confirm was told.
func (x *Index) said(s slot, number uint32, before []byte) bool {
	seg, i := x.at(s)
	l := &seg.links
	have, ok := l.number(i)
	switch {
	case !ok || have != number:
		return false
	case l.sure.has(i):
		return true
	case l.linked.has(i):
		return string(seg.key(i-1)) == string(before)
	}
	h := l.head(i)
	return number == 0 || !h.open && h.before == x.hash(before)
}
