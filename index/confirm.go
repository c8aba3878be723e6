package index

import "github.com/hitline/hitline/simd"

// Confirm records that a lookup has shown keys to be blocks number, number+1 and
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
		if x.claimed(s, number, before) {
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
	if !write || l.sure.firstAbsent(i) >= i+n {
		return n
	}
	x.mu.Lock()
	x.mu.count(n/64 + 1) // of words
	l.sure.setRange(i, n, true)
	x.mu.Unlock()
	return n
}

// claimed tells whether the key in a slot is said to be block number, behind the block
// before, and that is either sure or what Confirm was told.
func (x *Index) claimed(s slot, number uint32, before []byte) bool {
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
