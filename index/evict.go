package index

import (
	"math/bits"

	"github.com/hitline/hitline/simd"
)

// slackShare is the part of the slots that stays free once entries are evicted,
// a 32nd, so that evicted stretches grow together before they are used again: a
// chain stored into slots that were freed one by one would lie in pieces.
const slackShare = 32

// makeRoom grows the log or evicts until want keys can be stored, and returns for how
// many of them there is room. It does not evict keys of the same store. moved of the keys only change their slot.
func (x *Index) makeRoom(want, moved int, w *Writer) int {
	k := int64(want)
	free := k // slots that there should be
	if x.evicting {
		free = min(k+x.slots/slackShare, x.free+2*k) // the slack is made in steps
	}
	for {
		if x.free < free && x.grow() {
			continue
		}
		need := k - x.free
		if x.maxEntries > 0 {
			need = max(need, x.entries+k-int64(moved)-x.maxEntries)
		}
		more := max(need, min(free-x.free, x.allowance-rowSlots+1)) // rows go as a whole
		if more <= 0 {
			return want
		}
		if x.evictOldest(int(more), w) {
			continue
		}
		have := x.free
		if x.maxEntries > 0 {
			have = min(have, x.maxEntries-x.entries+int64(moved))
		}
		return int(max(min(have, k), 0))
	}
}

// evictedPerKey is how many entries a store may evict for each key: one whose slot it takes, and one more for the
// slack.
const evictedPerKey = 2

// allow adds to the allowance for n keys of a store. What stores do not need is kept for a batch only.
func (x *Index) allow(n int) {
	x.allowance = min(x.allowance+int64(evictedPerKey*n), evictedPerKey*batchKeys)
}

// evictOldest evicts the rows used least recently until n entries are gone, or about a batch. It returns false
// if there is nothing to evict but keys of the same store.
func (x *Index) evictOldest(n int, w *Writer) bool {
	var evicted [batchKeys]slot
	slots := evicted[:0]
	for len(slots) < n && len(slots) <= batchKeys-rowSlots {
		first, entries := x.oldestRow(w)
		if first == noSlot {
			break
		}
		for set := entries; set != 0; set &= set - 1 {
			slots = append(slots, first+slot(bits.TrailingZeros8(set)))
		}
		seg, i := x.at(first)
		x.evictedUse = seg.lastUse[i/rowSlots]
		if entries == seg.entriesOf(i/rowSlots) {
			seg.lastUse[i/rowSlots] = noUse // so that it is not found again
		} else {
			seg.usedLast[i/rowSlots] |= entries
		}
	}
	x.evictSlots(slots)
	for _, s := range slots {
		if seg, i := x.at(s); seg.lastUse[i/rowSlots] == noUse {
			seg.lastUse[i/rowSlots] = 0
		}
	}
	x.evicting = x.evicting || len(slots) > 0
	x.allowance -= int64(len(slots))
	return len(slots) > 0
}

// evictSlots removes the entries in some slots, at most a batch.
func (x *Index) evictSlots(slots []slot) {
	if len(slots) == 0 {
		return
	}
	var hashes [batchKeys]uint64
	var buckets [batchKeys]*bucket
	for j, s := range slots {
		seg, i := x.at(s)
		hashes[j] = x.hash(seg.key(i))
		buckets[j] = x.table.bucket(hashes[j])
	}
	simd.Prefetch(buckets[:len(slots)]) // before readers have to wait
	x.mu.Lock()
	for j, s := range slots {
		seg, i := x.at(s)
		x.table.replace(hashes[j], s, noSlot)
		x.setClass(seg, i, noClass)
	}
	x.entries -= int64(len(slots))
	x.mu.Unlock()
	for first, n := range stretches(slots) {
		x.freeSlots(first, n)
	}
	x.evicted.Add(int64(len(slots)))
}

// Evict takes keys away from a place; an entry that no place holds any more is
// gone. Keys that are not there are passed over. It returns how many keys were
// there. If an entry would need a class and none can be had, it is gone as well: better
// a block that is not found than one that is not there. Keys of another length than the
// index holds are refused with ErrOtherHashLen. keys is only borrowed.
func (x *Index) Evict(place int, keys []byte, hashLen int) (int, error) {
	if err := x.check([]int{place}, keys, hashLen); err != nil {
		return 0, err
	}
	evicted := 0
	for len(keys) > 0 {
		x.writing.Lock()
		held, n, err := x.evictBatch(place, keys, hashLen)
		x.writing.Unlock()
		evicted += held
		if err != nil {
			x.refused.Add(1)
			return evicted, err
		}
		keys = keys[n*hashLen:]
	}
	return evicted, nil
}

// evictBatch takes the first keys away from a place, at most batchKeys. It returns how
// many entries it has changed, and for how many keys.
func (x *Index) evictBatch(place int, keys []byte, hashLen int) (changed, n int, _ error) {
	if x.hashLen != 0 && hashLen != x.hashLen {
		return 0, 0, x.otherHashLen(hashLen)
	}
	n = min(len(keys)/hashLen, batchKeys)
	x.classes.freeIdle()
	var b batch
	var to [batchKeys]class
	x.findBatch(&b, keyArray{keys, hashLen, hashLen, n})
	for i := range n {
		s := b.slot[i]
		if s == noSlot {
			continue
		}
		seg, j := x.at(s)
		if !x.classes.coverage[seg.class[j]].holds(place) {
			b.slot[i] = noSlot
			continue
		}
		to[i], _ = x.nextClass(seg.class[j], []int{place}, true) // noClass if no class can be had
	}
	gone, changed := x.takeAway(&b, &to, n)
	for first, n := range stretches(gone) {
		x.freeSlots(first, n)
	}
	return changed, n, nil
}

// takeAway gives the entries of a batch their new classes, all at once for
// readers, and returns the slots of those that are gone and how many have changed.
// A key that stands in the batch twice counts once.
func (x *Index) takeAway(b *batch, to *[batchKeys]class, n int) (gone []slot, changed int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, s := range b.slot[:n] {
		if s == noSlot {
			continue
		}
		seg, j := x.at(s)
		if seg.class[j] == noClass || seg.class[j] == to[i] {
			continue // the same key again
		}
		changed++
		if x.setClass(seg, j, to[i]); to[i] == noClass {
			x.table.replace(b.hash[i], s, noSlot)
			x.entries--
			gone = append(gone, s)
		}
	}
	x.evicted.Add(int64(len(gone)))
	return gone, changed
}
