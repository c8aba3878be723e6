package fleet

import (
	"math/bits"
	"slices"
)

// end ends the prefixes of some holders in a medium, or allMedia, after n hashes.
func (q *pass) end(word uint32, medium uint8, holders uint64, n uint32) {
	for ; holders != 0; holders &= holders - 1 {
		q.ends = append(q.ends, packEnd(word*64+uint32(bits.TrailingZeros64(holders)), medium, n))
	}
}

// endAlive ends the prefixes of all holders that are alive.
func (q *pass) endAlive() {
	for _, a := range q.scan.alive {
		q.end(a.word, a.medium, a.bits, q.n)
	}
	q.scan.alive = q.scan.alive[:0]
}

// endAll ends the prefixes of all holders.
func (q *pass) endAll() {
	if q.rules.coordinator != nil {
		q.findHits()
	} else {
		q.endAlive()
	}
}

// End sets r to the answer. The next call is Begin.
func (q *Query) End(r *Result) {
	r.Holders, r.media = r.Holders[:0], r.media[:0]
	q.pass.endAll()
	for _, p := range q.others[:q.another] {
		p.endAll()
		q.ends = append(q.ends, p.ends...)
	}
	q.fleet.mu.RLock()
	defer q.fleet.mu.RUnlock()
	q.sortEnds()
	q.setResult(r)
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
		if stale := !q.isFresh(num); stale && medium != allMedia+1 {
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
		p := Prefix{ID: f.holders[q.ends[first]>>40].id, Tokens: int64(^uint32(o>>32)) * int64(f.cfg.BlockSize)}
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
