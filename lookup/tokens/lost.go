package tokens

// lostPlace returns the place of the block that ends the hit of a request's ask, whose blocks were marked. If that block has
// no entry, the next known block behind it that has one speaks for it. It returns NumPlaces if there is none.
func (a *Account) lostPlace(req *request, r *Event, now int64) Place {
	place, _ := a.firstPlace(r, req.known.atLeast, func(e *entry, group int) Place {
		if e.missedBy == req.number {
			return a.placeOfFirstMiss(e, e.flags&emptiedFlag != 0, group)
		}
		return a.placeOfLaterMiss(e, now)
	})
	return place
}

// placeNow returns what lostPlace would return for a new request, and the entry that says it, if there is one.
func (a *Account) placeNow(req *request, r *Event, now int64) (Place, *entry) {
	place, e := a.firstPlace(r, req.known.atLeast, func(e *entry, group int) Place {
		a.looks.apply(e)
		if emptied := a.isEmptied(e); emptied || e.missedBy == 0 {
			return a.placeOfFirstMiss(e, emptied, group)
		}
		return a.placeOfLaterMiss(e, now)
	})
	if place == NumPlaces {
		place = a.shares.largest(now)
	}
	return place, e
}

// firstPlace returns the first place that placeOf tells of the samples from the block that ends the hit to the last known one.
// group is the one that lacks the block, negative for one of full attention. Blocks are stored by the last hash of each.
func (a *Account) firstPlace(r *Event, known int, placeOf func(e *entry, group int) Place) (Place, *entry) {
	end, group, stride := r.end(), -1, a.pool.FullStride
	if r.EndBlock >= 0 {
		group, stride = r.EndGroup, a.pool.Strides[r.EndGroup]
	}
	for _, s := range r.samples {
		if s.block < end || s.block >= known || (s.block+1)%stride != 0 {
			continue
		}
		if e := a.table.get(s.fingerprint); e != nil {
			if place := placeOf(e, group); place != NumPlaces {
				return place, e
			}
		}
	}
	if end < r.Found { // blocks behind it were found
		return Evicted, nil
	}
	return NumPlaces, nil
}

// isEmptied reports whether a block was in the store, or might have been, before the store was emptied or the block was
// evicted by request. If the store may have been emptied, it was for blocks that a pool like this one would not have evicted
// yet: half as old as what it remembers.
func (a *Account) isEmptied(e *entry) bool {
	if e.asked == 0 {
		return false
	}
	last := max(e.whole, e.asked)
	if e.flags&removedFlag != 0 || a.emptied > last {
		return true
	}
	if a.suspect <= last {
		return false
	}
	remembers := a.recall.remembers()
	return remembers == 0 || a.suspect-last < remembers/2
}

// placeOfFirstMiss returns the place of a block that nobody has missed since it was whole but the request that asks,
// NumPlaces if nothing is remembered of it.
func (a *Account) placeOfFirstMiss(e *entry, emptied bool, group int) Place {
	switch {
	case emptied:
		return Emptied
	case e.whole == 0:
		return NumPlaces
	case e.flags&storedFlag != 0 && group >= 0 && e.stored&a.pool.Ranks[group] != a.pool.Ranks[group]:
		return Partial // this group has never had it
	}
	return Evicted
}

// placeOfLaterMiss returns the place of a block that another request has missed before.
func (a *Account) placeOfLaterMiss(e *entry, now int64) Place {
	closed := e.missedUntil + int64(askGap)
	switch {
	case now < closed+int64(a.pool.FirstLook):
		return Saving
	case !a.pool.Stores:
		return a.looks.placeOf(e, now, now < closed+int64(a.pool.FirstLook+a.pool.SecondLook))
	case e.stored != 0 && e.flags&staleFlag == 0:
		return Partial
	}
	return Unsaved
}
