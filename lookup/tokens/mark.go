package tokens

// mark remembers the blocks of an ask, and what its request knew of them if it is the first that teaches something.
func (a *Account) mark(req *request, r *Event, now int64) {
	samples := a.trackedSamples(r)
	first := req.marked == 0
	if first {
		req.known = a.knownBlocks(r, samples)
		if r.Answered {
			a.measure(req, r, samples, now)
			req.measured = true
		}
	}
	req.marked = now
	a.table.makeRoom(len(samples), a.reserve)
	if a.table.limit == 0 {
		return // there is no memory
	}
	for i := len(samples) - 1; i >= 0; i-- { // so that the first is the most recent, as in a pool
		e := a.table.touch(samples[i].fingerprint, uint16(min(r.chosenOf(samples[i].block)+.5, 1<<16-1)))
		a.markBlock(e, req, r, samples[i].block, now, first)
	}
	if now-a.adapted > int64(markEvery) {
		a.adapted = now
		a.table.updateJudged()
		a.table.adapt(now, a.recall.remembers())
	}
}

// trackedSamples returns those of whole blocks of the prompt that the table tracks. They are the ask's own.
func (a *Account) trackedSamples(r *Event) []sample {
	kept := r.samples[:0]
	for _, s := range r.samples {
		if a.table.tracks(s.fingerprint) {
			kept = append(kept, s)
		}
	}
	r.samples = kept
	return kept
}

// markBlock remembers what an ask tells of one block.
func (a *Account) markBlock(e *entry, req *request, r *Event, block int, now int64, first bool) {
	a.looks.apply(e)
	known := e.asked != 0
	emptied := a.isEmptied(e)
	if first && r.Answered && known && e.whole != 0 && e.missedBy == 0 && !emptied {
		a.recall.add(now, now-max(e.whole, e.asked), block < r.Whole)
	}
	switch {
	case r.Answered && block < r.Whole:
		e.whole, e.missedBy, e.lastMissedBy, e.flags = now, 0, 0, 0
	case emptied:
		e.missedBy, e.flags = req.number, emptiedFlag|staleFlag
	case e.missedBy == 0 && (r.Answered || e.whole == 0): // without an answer its engine computes the block, as if it had been missed
		e.missedBy, e.flags = req.number, e.flags&storedFlag|staleFlag
	}
	if e.missedBy == req.number {
		e.missedUntil = now
	}
	if e.missedBy != 0 && r.Answered {
		e.lastMissedBy = req.number
	}
	e.asked = now
}

// stored marks blocks that a rank of the memory index has stored. Blocks that nobody asked for are not remembered.
func (a *Account) stored(r *Event, now int64) {
	for _, s := range a.trackedSamples(r) {
		e := a.table.get(s.fingerprint)
		if e == nil {
			continue
		}
		if e.flags&staleFlag != 0 {
			e.stored, e.flags = 0, e.flags&^staleFlag
		}
		e.stored |= RankBit(r.rank)
		if a.pool.isWhole(e.stored) {
			e.whole, e.missedBy, e.lastMissedBy, e.flags = now, 0, 0, storedFlag
		}
	}
}

// removed marks blocks that were evicted by request.
func (a *Account) removed(r *Event) {
	for _, s := range a.trackedSamples(r) {
		if e := a.table.get(s.fingerprint); e != nil {
			e.flags |= removedFlag
			e.stored &^= RankBit(r.rank)
		}
	}
}

// RankBit returns the bit of a rank, 0 for one that has none.
func RankBit(rank int) uint64 {
	if rank >= 64 {
		return 0
	}
	return 1 << rank
}

// isWhole reports whether a block is whole that is stored on some ranks: all full-attention groups have it, or, without
// such groups, any group has it on all of its ranks.
func (p *Pool) isWhole(stored uint64) bool {
	if p.FullRanks != 0 {
		return stored&p.FullRanks == p.FullRanks
	}
	for _, ranks := range p.Ranks {
		if stored&ranks == ranks {
			return true
		}
	}
	return false
}
