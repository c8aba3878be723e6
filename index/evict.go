package index

// slackShare is the part of the slots that stays free once entries are evicted,
// a 32nd, so that evicted stretches grow together before they are used again: a
// chain stored into slots that were freed one by one would lie in pieces.
const slackShare = 32

// makeRoom grows the log or evicts until want keys of hashLen bytes can be stored,
// and returns for how many of them there is room. What the given store has placed
// or used is not evicted for it. moved of the keys only change their slot.
func (x *Index) makeRoom(hashLen, want, moved int, store uint32) int {
	k := int64(want)
	free := k // slots that there should be
	if x.evicting {
		free = min(k+x.slots/slackShare, x.free[hashLen]+2*k) // the slack is made in steps
	}
	for {
		over := int64(0)
		if x.maxEntries > 0 {
			over = x.entries + k - int64(moved) - x.maxEntries
		}
		short := free - x.free[hashLen]
		if short > 0 && x.grow(hashLen) {
			continue
		}
		need := max(over, short)
		if need <= 0 {
			return want
		}
		if x.evictOldest(hashLen, int(need), short > over, store) {
			continue
		}
		have := x.free[hashLen]
		if x.maxEntries > 0 {
			have = min(have, x.maxEntries-x.entries+int64(moved))
		}
		return int(max(min(have, k), 0))
	}
}

// evictOldest evicts at most n entries from the tail of the oldest span, the
// oldest cold one if there is one. slots says that it is for slots of hashLen,
// and not for the bound of entries. It returns false if there is nothing but what
// the store itself has placed.
func (x *Index) evictOldest(hashLen, n int, slots bool, store uint32) bool {
	id := x.oldest(store)
	if id == noSpan {
		return false
	}
	x.evicting = true
	if seg, _ := x.at(x.span(id).first); slots && seg.hashLen != hashLen {
		x.dropSlab(seg.slab)
		return true
	}
	x.evictTail(id, n)
	return true
}

// oldest returns the span to evict from.
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
	s := x.span(id)
	n = min(n, int(s.n), batchKeys)
	first := s.first + slot(int(s.n)-n)
	for _, h := range x.remove(first, n) {
		x.policy.evict(h, s.hot, x.entries)
	}
	if n == int(s.n) {
		x.forget(first, n)
	} else {
		s.n -= uint16(n)
		x.list(s.hot).entries -= int64(n)
	}
	x.give(first, n)
	x.evicted.Add(int64(n))
}

// remove makes a stretch of entries, within one segment and at most a batch,
// absent for readers, and returns their hashes.
func (x *Index) remove(first slot, n int) []uint64 {
	seg, i := x.at(first)
	hashes := x.hashes[:n]
	sum := uint32(0)
	for j := range n {
		h := x.hash(seg.key(i + j))
		hashes[j] = h
		sum += x.table.page(h).buckets[home(h)].passed // fetch it before readers have to wait
	}
	x.sum += sum
	x.mu.Lock()
	for j := range n {
		x.table.replace(hashes[j], first+slot(j), noSlot)
		seg.class[i+j] = noClass
		seg.same[(i+j)/64] = noClass
	}
	x.dropLinks(first, n)
	x.entries -= int64(n)
	x.removals.Add(1)
	x.mu.Unlock()
	return hashes
}

// Evict takes keys away from a place; an entry that no place holds any more is
// gone. Keys that are not there are passed over. It returns how many keys were
// there. keys is only borrowed.
func (x *Index) Evict(place int, keys []byte, hashLen int) (int, error) {
	if err := x.check(place, keys, hashLen); err != nil {
		return 0, err
	}
	evicted := 0
	for len(keys) > 0 {
		n := min(len(keys)/hashLen, batchKeys)
		x.writing.Lock()
		held, err := x.evictBatch(place, keys, hashLen, n)
		x.writing.Unlock()
		evicted += held
		if err != nil {
			return evicted, err
		}
		keys = keys[n*hashLen:]
	}
	return evicted, nil
}

// evictBatch takes n keys away from a place.
func (x *Index) evictBatch(place int, keys []byte, hashLen, n int) (_ int, err error) {
	x.reserve(noStore)
	var b batch
	var to [batchKeys]class
	x.findBatch(&b, keys, hashLen, hashLen, n)
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
		var ok bool
		if to[i], ok = x.step(seg.class[j], place, true); !ok {
			n, err = i, ErrClasses
			break
		}
	}
	gone, evicted := x.takeAway(&b, &to, n)
	for first, n := range stretches(gone) {
		x.forget(first, n)
		x.give(first, n)
	}
	return evicted, err
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
		seg.same[j/64] = noClass
		if seg.class[j] = to[i]; to[i] == noClass {
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
