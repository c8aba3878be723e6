package index

import "github.com/hitline/hitline/simd"

// slackShare is the part of the slots that stays free once entries are evicted,
// a 32nd, so that evicted stretches grow together before they are used again: a
// chain stored into slots that were freed one by one would lie in pieces.
const slackShare = 32

// makeRoom grows the log or evicts until want keys can be stored, and returns for how
// many of them there is room. Before it evicts it takes back preallocated slots. It evicts at
// most twice as many. What the given store has placed or used is not evicted for it. moved of
// the keys only change their slot.
func (x *Index) makeRoom(want, moved int, store uint32) int {
	k := int64(want)
	free := k // slots that there should be
	if x.evicting {
		free = min(k+x.slots/slackShare, x.free+x.prealloc.slots+2*k) // the slack is made in steps
	}
	for {
		over := int64(0)
		if x.maxEntries > 0 {
			over = x.entries + k - int64(moved) - x.maxEntries
		}
		short := free - x.free - x.prealloc.slots
		if (short > 0 || x.free < k) && x.grow() {
			continue
		}
		if short <= 0 && x.free < k && x.reclaim() {
			continue
		}
		need := max(over, short)
		if need <= 0 {
			return want
		}
		if id := x.oldest(store); id != noSpan {
			x.evictTail(id, int(need))
			continue
		}
		for x.free < k && x.reclaim() {
			continue
		}
		have := x.free
		if x.maxEntries > 0 {
			have = min(have, x.maxEntries-x.entries+int64(moved))
		}
		return int(max(min(have, k), 0))
	}
}

// oldest returns the span to evict from, noSpan if there is nothing but what the given
// store has placed or used.
func (x *Index) oldest(store uint32) spanID {
	cold, hot := x.cold.oldest, x.hot.oldest
	if cold != noSpan && x.span(cold).store == store {
		cold = noSpan
	}
	if hot != noSpan && x.span(hot).store == store {
		hot = noSpan
	}
	if cold == noSpan {
		return hot
	}
	if hot == noSpan || x.policy.coldFirst(x.span(cold).time, x.span(hot).time, x.entries) {
		return cold
	}
	return hot
}

// evictTail evicts the last entries of a span, at most n and at most a batch.
func (x *Index) evictTail(id spanID, n int) {
	x.evicting = true
	s := x.span(id)
	n = min(n, int(s.n), batchKeys)
	x.work += n * workPerEvicted
	first, hot := s.first+slot(int(s.n)-n), s.hot
	for _, h := range x.remove(first, n) {
		x.policy.evict(h, hot, x.entries)
	}
	x.cutOut(first, n)
	x.freeSlots(first, n)
	x.evicted.Add(int64(n))
}

// remove makes a stretch of entries, within one segment and at most a batch,
// absent for readers, and returns their hashes.
func (x *Index) remove(first slot, n int) []uint64 {
	seg, i := x.at(first)
	hashes := x.hashes[:n]
	var buckets [batchKeys]*bucket
	for j := range n {
		h := x.hash(seg.key(i + j))
		hashes[j] = h
		buckets[j] = x.table.bucket(h)
	}
	simd.Prefetch(buckets[:n]) // before readers have to wait
	x.mu.Lock()
	x.mu.count(n)
	for j := range n {
		x.table.replace(hashes[j], first+slot(j), noSlot)
		x.setClass(seg, i+j, noClass)
	}
	x.dropLinks(first, n)
	x.entries -= int64(n)
	x.removals.Add(1)
	x.mu.Unlock()
	return hashes
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
// many entries it has changed, and for how many keys. Each key may need a span; where
// there are few it takes one key alone, which needs none.
func (x *Index) evictBatch(place int, keys []byte, hashLen int) (changed, n int, _ error) {
	if x.hashLen != 0 && hashLen != x.hashLen {
		return 0, 0, x.otherHashLen(hashLen)
	}
	if n = x.reserve(min(len(keys)/hashLen, batchKeys), noStore); x.fewSpans {
		n = 1
	}
	if x.dump != nil {
		x.dump.addEvict(place, keys[:n*hashLen], hashLen)
	}
	var b batch
	var to [batchKeys]class
	x.findBatch(&b, keyArray{keys, hashLen, hashLen, n})
	x.writing.count(n * workPerStored)
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
		to[i], _ = x.step(seg.class[j], []int{place}, true) // noClass if no class can be had
	}
	gone, changed := x.takeAway(&b, &to, n)
	for first, n := range stretches(gone) {
		if x.fewSpans {
			first = x.fillHole(first)
		}
		x.cutOut(first, n)
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
		x.mu.count(1)
		if x.setClass(seg, j, to[i]); to[i] == noClass {
			x.table.replace(b.hash[i], s, noSlot)
			x.dropLinks(s, 1)
			x.entries--
			gone = append(gone, s)
		}
		x.removals.Add(1)
	}
	x.evicted.Add(int64(len(gone)))
	return gone, changed
}
