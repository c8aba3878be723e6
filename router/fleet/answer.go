package fleet

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// prefixEnd is where the prefixes of some holders end in a medium, or allMedia: after n hashes.
type prefixEnd struct {
	bits   uint64
	word   uint32
	n      uint32
	medium uint8
}

// end ends the prefixes of some holders in a medium, or allMedia, after n hashes.
func (q *pass) end(word uint32, medium uint8, holders uint64, n uint32) {
	if holders != 0 {
		q.ends = append(q.ends, prefixEnd{holders, word, n, medium})
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

// answer is the working memory of End.
type answer struct {
	order []uint64 // hashes << 32 | index of the holder, the longest prefix first
	only  uint8    // the medium of all prefixes: then there are no entries; allMedia: there are several
	first []uint32 // by index of a holder: its first entry, 0 for none
	// entries are the prefixes of a holder by medium, in lists in the order of the media's names. The one of number 0 is
	// at the end of all lists.
	entries []answerEntry
	sorting bitmap // zeros between two uses
}

type answerEntry struct {
	n, next uint32
	medium  uint8 // in the order of their names, from 1 on; or allMedia
}

// End sets r to the answer. The next call is Begin.
func (q *Query) End(r *Result) {
	q.pass.endAll()
	for _, p := range q.others[:q.another] {
		p.endAll()
		q.ends = append(q.ends, p.ends...)
	}
	q.fleet.mu.RLock()
	defer q.fleet.mu.RUnlock()
	q.orderHolders()
	q.setResult(r)
}

// orderHolders lists the holders that have a prefix, the longest first, and the prefixes of each.
func (q *Query) orderHolders() {
	a := &q.answer
	a.order, a.entries = a.order[:0], append(a.entries[:0], answerEntry{medium: maxMedia + 1})
	a.only = onlyMedium(q.ends)
	if n := len(q.fleet.holders); n > len(a.first) {
		a.first, a.sorting = make([]uint32, n), make(bitmap, n/64+1)
	}
	slices.SortFunc(q.ends, func(a, b prefixEnd) int { return cmp.Compare(a.n, b.n) }) // they mostly are in order
	for end := len(q.ends); end > 0 && q.ends[end-1].n > 0; {
		n, from := q.ends[end-1].n, len(a.order)
		for ; end > 0 && q.ends[end-1].n == n; end-- {
			if e := &q.ends[end-1]; a.only == allMedia || e.medium == a.only {
				q.list(e)
			}
		}
		a.sort(a.order[from:])
	}
}

// onlyMedium returns the medium of all prefixes, if they are the same in all media together; otherwise allMedia.
func onlyMedium(ends []prefixEnd) uint8 {
	if len(ends) < 2 || len(ends)%2 != 0 {
		return allMedia
	}
	only := ends[1].medium
	for ; len(ends) > 0; ends = ends[2:] {
		all := ends[0]
		if all.medium != allMedia || ends[1] != (prefixEnd{all.bits, all.word, all.n, only}) {
			return allMedia
		}
	}
	return only
}

// list adds the prefixes that end. Numbers that were retired during the query are left out, and of holders that were
// stale all but what is predicted.
func (q *Query) list(e *prefixEnd) {
	c, a := q.core, &q.answer
	t, isPredicted, medium := &c.numbers, e.medium == allMedia+1, e.medium
	if medium != allMedia {
		medium = c.tiers.order[medium-1] + 1
	}
	holders := e.bits & q.freshHolders()[e.word]
	if isPredicted {
		holders = e.bits & t.live[e.word]
	}
	order := a.order
	for ; holders != 0; holders &= holders - 1 {
		at := &t.list[e.word*64+uint32(bits.TrailingZeros64(holders))]
		if at.since > q.version || !isPredicted && !q.lastKnown && at.freshAt > q.version {
			continue
		}
		if a.only != allMedia {
			order = append(order, uint64(e.n)<<32|uint64(at.index))
			continue
		}
		to := &a.first[at.index]
		if *to == 0 {
			order = append(order, uint64(e.n)<<32|uint64(at.index))
		}
		for a.entries[*to].medium < medium {
			to = &a.entries[*to].next
		}
		next := *to
		*to = uint32(len(a.entries))
		a.entries = append(a.entries, answerEntry{e.n, next, medium})
	}
	a.order = order
}

// sort sorts holders of one length by their indexes.
func (a *answer) sort(list []uint64) {
	if len(list) <= 16 || slices.IsSorted(list) {
		slices.Sort(list)
		return
	}
	for _, o := range list {
		a.sorting.set(uint32(o))
	}
	length, i := list[0]&^math.MaxUint32, 0
	for w, word := range a.sorting {
		for ; word != 0; word &= word - 1 {
			list[i] = length | uint64(w*64+bits.TrailingZeros64(word))
			i++
		}
		a.sorting[w] = 0
	}
}

// setResult makes the result of the answer.
func (q *Query) setResult(r *Result) {
	f, a := q.fleet, &q.answer
	names, blockSize := q.core.tiers.sorted, int64(f.cfg.BlockSize)
	r.Holders = slices.Grow(r.Holders[:0], len(a.order))[:len(a.order)]
	r.media = slices.Grow(r.media[:0], len(a.order)+len(a.entries)) // so that it stays where it is
	if a.only != allMedia {
		r.setOnly(f.holders, a.order, names[q.core.tiers.order[a.only-1]], blockSize)
		return
	}
	for i, o := range a.order {
		index, media := uint32(o), r.media[len(r.media):]
		for next := a.first[index]; next != 0; {
			e := &a.entries[next]
			if next = e.next; e.medium != allMedia {
				media = append(media, MediumPrefix{names[e.medium-1], int64(e.n) * blockSize})
			}
		}
		a.first[index] = 0
		r.media = r.media[:len(r.media)+len(media)]
		r.Holders[i] = Prefix{f.holders[index].id, int64(o>>32) * blockSize, media[:len(media):len(media)]}
	}
}

// setOnly makes the result of prefixes in one medium.
func (r *Result) setOnly(holders []*Holder, order []uint64, medium string, blockSize int64) {
	r.media = r.media[:len(order)]
	for i, o := range order {
		p, media, tokens := &r.Holders[i], r.media[i:i+1:i+1], int64(o>>32)*blockSize
		media[0].Medium, media[0].Tokens = medium, tokens
		p.ID, p.Tokens, p.Media = holders[uint32(o)].id, tokens, media
	}
}
