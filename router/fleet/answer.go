package fleet

import (
	"math"
	"math/bits"
	"slices"
)

// end ends the prefixes of some holders in a medium, or allMedia, before the next hash.
func (q *Query) end(word uint32, medium uint16, holders uint64) {
	for ; holders != 0; holders &= holders - 1 {
		q.endHolder(word*64+uint32(bits.TrailingZeros64(holders)), medium, q.n)
	}
}

// endHolder ends the prefix of a holder in a medium after n hashes.
func (q *Query) endHolder(number uint32, medium uint16, n uint32) {
	q.ends = append(q.ends, packEnd(number, uint8(medium), n))
}

// End sets r to the answer. The next call is Begin.
func (q *Query) End(r *Result) {
	for !q.EndSome(r, math.MaxInt) {
	}
}

// endPiece is the work for which EndSome holds the lock: some 0.1 ms, for a writer that waits.
const endPiece = 1 << 15

// EndSome is End in pieces of about most units of work, see Work, and of no more than are good for those that change the
// fleet meanwhile. If it returns false there is more to do, and the next call goes on. What is not cut is the prefix of
// one holder by the rules of several groups, and sorting the holders.
func (q *Query) EndSome(r *Result, most int) (done bool) {
	f := q.fleet
	r.Holders, r.media = r.Holders[:0], r.media[:0]
	f.mu.RLock()
	defer f.mu.RUnlock()
	if q.core != f.core {
		return true
	}
	q.oldest = max(q.oldest, q.core.oldest)
	if q.rules.coordinator != nil {
		if !q.findHits(min(most, endPiece)) {
			return false
		}
	} else {
		for _, a := range q.scan.alive {
			q.end(a.word, a.medium, a.bits)
		}
		q.scan.alive = q.scan.alive[:0]
	}
	q.work += len(q.ends) * endWork
	q.sortEnds()
	q.setResult(r)
	return true
}

// sortEnds replaces holder numbers by the indexes of the holders, and the numbers of media by their order by name, and
// sorts. Numbers that were retired during the query are left out, and of holders that were stale all but what is
// predicted.
func (q *Query) sortEnds() {
	c, left := q.core, q.ends[:0]
	for _, e := range q.ends {
		num, medium, n := uint32(e>>40), uint8(e>>32), uint32(e)
		at := &c.numbers.list[num]
		if at.holder == nil || at.since > q.version {
			continue
		}
		if stale := !c.numbers.isFresh(num, q.version); stale && medium != allMedia+1 {
			continue
		}
		if medium != allMedia {
			medium = c.tiers.order[medium-1] + 1
		}
		left = append(left, packEnd(at.holder.index, medium, n))
	}
	slices.Sort(left)
	q.ends = left
}

// setResult makes the answer of ends in order.
func (q *Query) setResult(r *Result) {
	f := q.fleet
	q.order = q.order[:0]
	for i := 0; i < len(q.ends); {
		holder, longest, first := q.ends[i]>>40, uint32(0), i
		for ; i < len(q.ends) && q.ends[i]>>40 == holder; i++ {
			longest = max(longest, uint32(q.ends[i]))
		}
		if longest > 0 {
			q.order = append(q.order, uint64(^longest)<<32|uint64(first))
		}
	}
	slices.Sort(q.order) // the longest first, then by name
	r.Holders = slices.Grow(r.Holders, len(q.order))
	r.media = slices.Grow(r.media, len(q.ends)) // so that it stays where it is
	for _, o := range q.order {
		first := int(uint32(o))
		p := Prefix{ID: f.byName[q.ends[first]>>40].id, Tokens: int64(^uint32(o>>32)) * int64(f.cfg.BlockSize)}
		from := len(r.media)
		for _, e := range q.ends[first:] {
			if e>>40 != q.ends[first]>>40 {
				break
			}
			if medium := uint8(e >> 32); medium != allMedia && uint32(e) > 0 {
				r.media = append(r.media, MediumPrefix{q.core.tiers.sorted[medium-1], int64(uint32(e)) * int64(f.cfg.BlockSize)})
			}
		}
		p.Media = r.media[from:len(r.media):len(r.media)]
		r.Holders = append(r.Holders, p)
	}
}
