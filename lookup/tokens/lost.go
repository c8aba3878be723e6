package tokens

// lostPlace returns the place of the block that ends the hit. If it has no entry, the next known block behind it that has one
// speaks for it. It returns NumPlaces if there is none.
func (a *Account) lostPlace(req *request, r *Ask, now int64) Place {
	end, group := r.Found, -1
	if r.EndBlock >= 0 {
		end, group = r.EndBlock, r.EndGroup
	}
	for _, s := range r.samples {
		if s.block < end || s.block >= req.known.atLeast {
			continue
		}
		if e := a.table.get(s.fingerprint); e != nil {
			if place := a.placeOf(e, req, group, now); place != NumPlaces {
				return place
			}
		}
	}
	if end < r.Found { // blocks behind it were found
		return Evicted
	}
	return NumPlaces
}

// placeOf returns the place of a block that a request has missed, NumPlaces if nothing was known of it before. group is the
// group that lacks it, negative for one of full attention.
func (a *Account) placeOf(e *entry, req *request, group int, now int64) Place {
	if e.missedBy == req.number {
		switch {
		case e.flags&emptiedFlag != 0:
			return Emptied
		case e.whole == 0:
			return NumPlaces
		case e.flags&storedFlag != 0 && group >= 0 && e.stored&a.pool.Places[group] != a.pool.Places[group]:
			return Partial // this group has never had it
		}
		return Evicted
	}
	switch {
	case now < e.missedUntil+int64(askGap+savingTime):
		return Saving
	case !a.pool.Stores:
		return Evicted // nobody has looked whether it was saved
	case e.stored != 0 && e.flags&staleFlag == 0:
		return Partial
	}
	return Unsaved
}
