package index

import (
	"iter"
	"slices"

	"github.com/hitline/hitline/simd"
)

// Writer is the state of one store between batches: the chain continues where
// the last batch ended. The zero value begins a new chain; a Writer is used for
// one store.
type Writer struct {
	last    slot             // of the key stored last
	lastKey [maxHashLen]byte // of hashLen bytes
	hashLen int              // 0 before the first key
	full    bool
	use     uint64 // when the store began, by Index.clock; 0 before that
	stored  int
}

// Stored is how many of the keys the places hold. It is less than were given if Store has
// failed or the chain is longer than the whole index: then it is the first ones.
func (w *Writer) Stored() int { return w.stored }

// Store adds keys, consecutive chunks of a chain, to places, which ascend. Each entry changes
// once for all of them. Keys that are there already count as used. Where the bounds leave no
// room, the least recently used entries make way, at most twice as many as there are keys; a
// chain longer than the whole index keeps its beginning. It fails with ErrHashLen, ErrCutKey,
// ErrPlace or ErrOtherHashLen, or, where Stored tells how far it came, with ErrClasses. places
// and keys are only borrowed. Safe for concurrent use with different Writers.
func (x *Index) Store(w *Writer, places []int, keys []byte, hashLen int) error {
	if err := x.check(places, keys, hashLen); err != nil {
		return err
	}
	var next batch
	for len(keys) > 0 && !w.full {
		x.writing.Lock()
		n, err := x.storeBatch(w, &next, places, keys, hashLen)
		x.writing.Unlock()
		if err != nil {
			x.refused.Add(1)
			return err
		}
		keys = keys[n*hashLen:]
	}
	return nil
}

// check refuses what cannot be stored or evicted.
func (x *Index) check(places []int, keys []byte, hashLen int) error {
	switch {
	case hashLen < 1 || hashLen > maxHashLen:
		return ErrHashLen
	case len(keys)%hashLen != 0:
		return ErrCutKey
	case len(places) == 0:
		return ErrPlace
	}
	next := 0
	for _, place := range places {
		if place < next || place >= x.places {
			return ErrPlace
		}
		next = place + 1
	}
	return nil
}

// storing is a batch on its way into the index.
type storing struct {
	batch
	have   [batchKeys]class
	to     [batchKeys]class
	from   [batchKeys]slot // where a key was that is moved, else noSlot
	fresh  [batchKeys]bool // absent so far
	n      int
	moved  int
	places int // at how many the keys are stored
}

// storeBatch stores the first of the keys, at most batchKeys, and returns how many. It
// works out all that changes while readers go on, and then changes it at once. ahead has what
// fetchAhead knows of these keys, and then of the next ones.
func (x *Index) storeBatch(w *Writer, ahead *batch, places []int, keys []byte, hashLen int) (n int, _ error) {
	if err := x.useHashLen(hashLen); err != nil {
		return 0, err
	}
	x.used, x.splits = true, 0
	x.applyTouches(touchStore)
	x.releaseStep()
	x.classes.freeIdle()
	if w.use == 0 {
		w.use = x.nextUse()
		x.storeAt = w.use
	}
	var b storing
	b.n, b.places = min(len(keys)/hashLen, batchKeys), len(places)
	keys, rest := keys[:b.n*hashLen], keys[b.n*hashLen:]
	x.findStored(&b, ahead, w, keys, hashLen)
	fresh, err := x.classify(&b, places, keys, hashLen)
	ahead.hashed = 0
	if n := len(keys) / hashLen; b.n == n && b.fresh[n-1] { // so they will be asked for, too
		x.fetchAhead(ahead, rest, hashLen)
	}
	for first, n := range stretches(b.slot[:b.n]) { // so they are not evicted for the others
		x.markUsed(first, n, w.use)
	}
	x.chooseMoved(&b)
	x.allow(b.n)
	if want := fresh + b.moved; want > 0 {
		room := x.makeRoom(want, b.moved, w)
		if room < want {
			room, b.moved = x.makeRoom(fresh, 0, w), 0
		}
		x.allocate(&b, w, keys, hashLen, room)
	}
	x.publish(&b)
	if b.n > 0 {
		w.stored += b.n
		w.last = b.slot[b.n-1]
		w.hashLen = copy(w.lastKey[:], keys[(b.n-1)*hashLen:b.n*hashLen])
	}
	x.finish(&b, w)
	return b.n, err
}

// findStored finds the keys that are there: where the chain goes on in the log,
// then through the table. ahead may have the hashes.
func (x *Index) findStored(b *storing, ahead *batch, w *Writer, keys []byte, hashLen int) {
	n := 0
	if next := x.resume(w); next != noSlot && x.valid(next+1) != noSlot {
		seg, i := x.at(next + 1)
		live := 0
		for live < b.n && i+live < segmentSlots && seg.class[i+live] != noClass {
			live++
		}
		n = simd.EqualPrefix(seg.records(i, live), keys, hashLen)
		for j := range n {
			b.slot[j] = next + 1 + slot(j)
		}
	}
	if n == b.n {
		return
	}
	if n > 0 {
		ahead.hashed = 0
	}
	x.findBatch(ahead, keyArray{keys[n*hashLen:], hashLen, hashLen, b.n - n})
	copy(b.hash[n:], ahead.hash[:])
	copy(b.slot[n:], ahead.slot[:])
}

// fetchAhead hashes the keys of the next batch and starts to fetch their buckets, which takes
// about as long as the rest of this one.
func (x *Index) fetchAhead(ahead *batch, keys []byte, hashLen int) {
	k := keyArray{keys, hashLen, hashLen, min(len(keys)/hashLen, batchKeys)}
	for g := 0; g*partKeys < k.n; g++ {
		x.hashPart(ahead, &k, g)
	}
	ahead.hashed = k.n
}

// resume returns the slot of the key stored last if that entry is still there.
func (x *Index) resume(w *Writer) slot {
	if w.hashLen != x.hashLen || x.valid(w.last) == noSlot {
		return noSlot
	}
	seg, i := x.at(w.last)
	if seg.class[i] == noClass || string(seg.key(i)) != string(w.lastKey[:w.hashLen]) {
		return noSlot
	}
	return w.last
}

// classify decides the new class of each key and returns how many keys are new.
// The batch ends before a new key that comes in it a second time, as it is stored then, and
// before one whose class cannot be had.
func (x *Index) classify(b *storing, places []int, keys []byte, hashLen int) (fresh int, err error) {
	var from, to class
	var seen firstKeys
	for i := range b.n {
		have := noClass
		if s := b.slot[i]; s != noSlot {
			seg, j := x.at(s)
			have = seg.class[j]
		} else if seen.add(b, i, keys, hashLen) {
			b.fresh[i] = true
			fresh++
		} else {
			b.n = i
			return fresh, nil
		}
		b.have[i] = have
		if i == 0 || have != from {
			known := slices.Index(b.have[:i], have)
			if known >= 0 {
				to = b.to[known]
			} else if c, ok := x.nextClass(have, places, false); ok {
				to = c
			} else {
				if b.fresh[i] {
					fresh--
				}
				b.n = i
				return fresh, x.tooManyClasses()
			}
			from = have
		}
		b.to[i] = to
	}
	return fresh, nil
}

// firstKeys is a hash table of the new keys of a batch: the place of each in the batch, plus one.
// It is so large that few of them meet another one.
type firstKeys [8 * batchKeys]uint8

// add adds the new key i of a batch, and returns false if it came earlier in the same batch.
func (f *firstKeys) add(b *storing, i int, keys []byte, hashLen int) bool {
	for at := b.hash[i]; ; at++ {
		cell := &f[at%uint64(len(f))]
		if *cell == 0 {
			*cell = uint8(i) + 1
			return true
		}
		j := int(*cell) - 1
		if b.hash[j] == b.hash[i] && string(keys[j*hashLen:][:hashLen]) == string(keys[i*hashLen:][:hashLen]) {
			return false
		}
	}
}

// scattered is in how many pieces a batch may lie in the log, before it is written
// anew in one: eight keys each are worth following.
const scattered = batchKeys / 8

// chooseMoved decides whether the keys that are there are moved, to lie in the
// order of the chain together with the new ones. It is how a log that has become
// fragmented, or that holds every k-th key of a chain from another group, comes
// into order: in the steps and at the expense of those who store. While places are reset no
// store moves entries: the reset walks along the log and would miss those.
func (x *Index) chooseMoved(b *storing) {
	pieces, known, gap := 0, 0, slot(1)
	for i, s := range b.slot[:b.n] {
		b.from[i] = noSlot
		if s == noSlot {
			continue
		}
		known++
		if i == 0 || b.slot[i-1] == noSlot {
			pieces++
			continue
		}
		// Every k-th key of a chain that another group stores in full lies in order, too: it would only
		// be moved to and fro.
		before := gap
		if gap = s - b.slot[i-1]; gap != 1 && (gap != before || gap > maxGap) {
			pieces++
		}
	}
	if pieces > scattered && x.resetting == 0 && !b.hasRepeatedKey() {
		b.moved = known
	}
}

// maxGap bounds, in slots, how far apart keys are looked at for being in order.
const maxGap = 32

// hasRepeatedKey reports whether a stored key is in the batch twice.
func (b *storing) hasRepeatedKey() bool {
	slots := b.slot
	s := slots[:b.n]
	slices.Sort(s)
	for i := 1; i < len(s); i++ {
		if s[i] == s[i-1] && s[i] != noSlot {
			return true
		}
	}
	return false
}

// allocate gives the first room of the new and moved keys their slots and writes
// them there. If that is not all, the batch is cut.
func (x *Index) allocate(b *storing, w *Writer, keys []byte, hashLen, room int) {
	x.choosePlaced(b, w, room)
	for i := 0; i < b.n; {
		n := 0
		for i+n < b.n && b.placed(i+n) {
			n++
		}
		if n == 0 {
			i++
			continue
		}
		s, n := x.take(n)
		seg, j := x.at(s)
		copy(seg.records(j, n), keys[i*hashLen:])
		for end := i + n; i < end; i++ {
			b.slot[i] = s
			s++
		}
	}
}

// placed reports whether key i is new or moved, and so gets a slot.
func (b *storing) placed(i int) bool { return b.fresh[i] || b.from[i] != noSlot }

// choosePlaced decides which keys get slots, the first room of those that are new or moved. It
// makes room for them in the table, and cuts the batch before the first that finds none.
func (x *Index) choosePlaced(b *storing, w *Writer, room int) {
	for i := 0; i < b.n; i++ { // which may shrink
		if !b.fresh[i] {
			if b.moved == 0 || b.slot[i] == noSlot {
				continue
			}
			b.from[i] = b.slot[i]
		}
		if room == 0 { // only this chain itself could make way
			w.full = true
			if !x.evictBehind(b, i) {
				b.n = i
				return
			}
			room++
		}
		room--
		if b.fresh[i] && !x.prepare(b.hash[i]) {
			w.full, b.n = true, i
			return
		}
	}
}

// evictBehind evicts the last key of a batch that is there, if it comes behind key
// i, and cuts the batch before it: of a chain longer than the index the
// beginning stays.
func (x *Index) evictBehind(b *storing, i int) bool {
	for j := b.n - 1; j > i; j-- {
		if s := b.slot[j]; s != noSlot && !b.fresh[j] && !slices.Contains(b.slot[:j], s) {
			x.evictSlots([]slot{s})
			b.n = j
			return true
		}
	}
	return false
}

// publish shows readers what the batch changes.
func (x *Index) publish(b *storing) {
	stored, inserted := int64(0), 0
	if b.moved > 0 {
		x.readMoved(b)
	}
	x.fetchBuckets(b)
	x.mu.Lock()
	for i, s := range b.slot[:b.n] {
		seg, j := x.at(s)
		if from := b.from[i]; from != noSlot {
			x.moveEntry(from, s, b.hash[i])
		}
		if b.fresh[i] {
			x.table.insert(b.bucket[inserted], b.hash[i], s)
			inserted++
			x.entries++
		}
		if seg.class[j] != b.to[i] {
			stored += x.classes.added(seg.class[j], b.to[i], b.places)
			x.setClass(seg, j, b.to[i])
		}
	}
	if stored > 0 || b.moved > 0 {
		x.summarizeGroups(b)
	}
	x.mu.Unlock()
	x.stored.Add(stored)
}

// readMoved reads what moveEntry needs of a batch, while readers go on.
func (x *Index) readMoved(b *storing) {
	for i, from := range b.from[:b.n] {
		if from != noSlot {
			old, k := x.at(from)
			b.hash[i] = x.hash(old.key(k)) // which may have been found without it
		}
	}
}

// fetchBuckets fetches the buckets of the new keys, in their order, before readers have to wait:
// a split may have moved them.
func (x *Index) fetchBuckets(b *storing) {
	n := 0
	for i, h := range b.hash[:b.n] {
		if b.fresh[i] {
			b.bucket[n] = x.table.bucket(h)
			n++
		}
	}
	simd.Prefetch(b.bucket[:n])
}

// moveEntry shows readers an entry in another slot, which holds its key already.
func (x *Index) moveEntry(from, to slot, hash uint64) {
	seg, j := x.at(to)
	old, k := x.at(from)
	x.table.replace(hash, from, to)
	seg.class[j], old.class[k] = old.class[k], noClass
	seg.groupClass[j/groupSlots], old.groupClass[k/groupSlots] = noClass, noClass
}

// summarizeGroups calls summarizeGroup for the groups of slots that a batch is in.
func (x *Index) summarizeGroups(b *storing) {
	last := noSlot
	for _, s := range b.slot[:b.n] {
		if s/groupSlots != last/groupSlots {
			seg, j := x.at(s)
			x.summarizeGroup(seg, j)
			last = s
		}
	}
}

// finish marks the new and moved keys as used, and frees the slots that keys have left.
func (x *Index) finish(b *storing, w *Writer) {
	for i := range b.n {
		if !b.placed(i) {
			b.slot[i] = noSlot // marked before
		} else if old := b.from[i]; old != noSlot {
			x.freeSlots(old, 1)
		}
	}
	for first, n := range stretches(b.slot[:b.n]) {
		x.markUsed(first, n, w.use)
	}
}

// stretches joins consecutive slots of one segment; noSlot stands between
// stretches.
func stretches(slots []slot) iter.Seq2[slot, int] {
	return func(yield func(slot, int) bool) {
		for i := 0; i < len(slots); {
			first := slots[i]
			if first == noSlot {
				i++
				continue
			}
			n := 1
			for i+n < len(slots) && slots[i+n] == first+slot(n) && (first+slot(n))&segmentMask != 0 {
				n++
			}
			if !yield(first, n) {
				return
			}
			i += n
		}
	}
}
