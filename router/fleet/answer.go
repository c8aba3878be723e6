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
func (p *pass) endPrefix(word uint32, medium uint8, holders uint64, n uint32) {
	if holders != 0 {
		p.ends = append(p.ends, prefixEnd{holders, word, n, medium})
	}
}

// endOpen ends the prefixes that are open.
func (p *pass) endOpen() {
	for _, a := range p.scan.open {
		p.endPrefix(a.word, a.medium, a.bits, p.n)
	}
	p.scan.open = p.scan.open[:0]
}

// endAll ends the prefixes of all holders.
func (p *pass) endAll() {
	if p.rules.coordinator != nil {
		p.findHits()
	} else {
		p.endOpen()
	}
}

// answer is the working memory of End.
type answer struct {
	order        []uint64 // hashes << 32 | index of the holder, the longest prefix first
	commonMedium uint8    // the medium of all prefixes: then there are no entries; allMedia: there are several
	heads        []uint32 // by index of a holder: its first entry, 0 for none
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
	first := q.passes[0]
	first.endAll()
	for _, p := range q.passes[1:q.numPasses] {
		p.endAll()
		first.ends = append(first.ends, p.ends...)
	}
	first.fleet.mu.RLock()
	defer first.fleet.mu.RUnlock()
	q.answer.orderHolders(first)
	q.answer.setResult(first, r)
}

// orderHolders lists the holders that have a prefix, the longest first, and the prefixes of each.
func (a *answer) orderHolders(p *pass) {
	a.order, a.entries = a.order[:0], append(a.entries[:0], answerEntry{medium: maxMedia + 1})
	a.commonMedium = findCommonMedium(p.ends)
	if n := len(p.fleet.holders); n > len(a.heads) {
		a.heads, a.sorting = make([]uint32, n), make(bitmap, n/64+1)
	}
	slices.SortFunc(p.ends, func(a, b prefixEnd) int { return cmp.Compare(a.n, b.n) }) // they mostly are in order
	for end := len(p.ends); end > 0 && p.ends[end-1].n > 0; {
		n, from := p.ends[end-1].n, len(a.order)
		for ; end > 0 && p.ends[end-1].n == n; end-- {
			if e := &p.ends[end-1]; a.commonMedium == allMedia || e.medium == a.commonMedium {
				a.addPrefixes(p, e)
			}
		}
		a.sort(a.order[from:])
	}
}

// findCommonMedium returns the medium of all prefixes, if they are the same in all media together; otherwise allMedia.
func findCommonMedium(ends []prefixEnd) uint8 {
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

// addPrefixes adds the prefixes that end. Numbers that were retired during the query are left out, and of holders that were
// stale all but what is predicted.
func (a *answer) addPrefixes(p *pass, e *prefixEnd) {
	c := p.core
	t, isPredicted, medium := &c.numbers, e.medium == allMedia+1, e.medium
	if medium != allMedia {
		medium = c.tiers.order[medium-1] + 1
	}
	holders := e.bits & p.freshHolders()[e.word]
	if isPredicted {
		holders = e.bits & t.live[e.word]
	}
	order := a.order
	for ; holders != 0; holders &= holders - 1 {
		at := &t.list[e.word*64+uint32(bits.TrailingZeros64(holders))]
		if at.since > p.numbersVersion || !isPredicted && !p.lastKnown && at.freshAt > p.numbersVersion {
			continue
		}
		if a.commonMedium != allMedia {
			order = append(order, uint64(e.n)<<32|uint64(at.index))
			continue
		}
		to := &a.heads[at.index]
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
func (a *answer) setResult(p *pass, r *Result) {
	f := p.fleet
	names, blockSize := p.core.tiers.sorted, int64(f.cfg.BlockSize)
	r.Holders = slices.Grow(r.Holders[:0], len(a.order))[:len(a.order)]
	r.media = slices.Grow(r.media[:0], len(a.order)+len(a.entries)) // so that it stays where it is
	if a.commonMedium != allMedia {
		r.setOneMedium(f.holders, a.order, names[p.core.tiers.order[a.commonMedium-1]], blockSize)
		return
	}
	for i, o := range a.order {
		index, media := uint32(o), r.media[len(r.media):]
		for next := a.heads[index]; next != 0; {
			e := &a.entries[next]
			if next = e.next; e.medium != allMedia {
				media = append(media, MediumPrefix{names[e.medium-1], int64(e.n) * blockSize})
			}
		}
		a.heads[index] = 0
		r.media = r.media[:len(r.media)+len(media)]
		r.Holders[i] = Prefix{f.holders[index].id, int64(o>>32) * blockSize, media[:len(media):len(media)]}
	}
}

// setOneMedium makes the result of prefixes in one medium.
func (r *Result) setOneMedium(holders []*Holder, order []uint64, medium string, blockSize int64) {
	r.media = r.media[:len(order)]
	for i, o := range order {
		p, media, tokens := &r.Holders[i], r.media[i:i+1:i+1], int64(o>>32)*blockSize
		media[0].Medium, media[0].Tokens = medium, tokens
		p.ID, p.Tokens, p.Media = holders[uint32(o)].id, tokens, media
	}
}
