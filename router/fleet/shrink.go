package fleet

import (
	"iter"
	"math/bits"
)

// shrinking is a pass over the log that drops blocks.
type shrinking struct {
	level    int    // of entries: holders with more lose blocks
	record   uint32 // the next one of segment core.hand
	segments int    // how many are left in the pass
	wanted   int64  // how many records are still to go
}

// makeRoom frees memory at the bound, for a prediction or for events. Unless it is the first try, which only collects, it
// drops something: of predictions and the largest holder what is more, and of predictions the oldest first. It waits for
// snapshots, as nothing is freed while one is copied. makeRoom returns false if there was nothing to drop.
func (f *Fleet) makeRoom(isFirst, predicts bool) bool {
	f.room.Lock()
	defer f.room.Unlock()
	defer f.collect()
	switch {
	case isFirst:
		return true
	case predicts:
		return f.dropPredictions(false)
	}
	var s shrinking
	predicted := 0
	f.readLocked(func() {
		s.wanted = f.core.log.records/8 + 2*segmentLen
		oldest := f.core.oldestAt(f.epoch())
		for _, h := range f.holders {
			s.level = max(s.level, h.entries)
			predicted += h.predicted.count(oldest)
		}
	})
	return predicted >= s.level && f.dropPredictions(true) || f.shrink(s) || f.dropPredictions(true)
}

// shrink drops an eighth of all blocks and some: so many that compaction frees memory. It drops those that only the
// holders with the most entries have, in the order of the log from where it ended last: it first visits holders with more
// than three quarters of the entries of the largest one, and lowers this level until enough has gone. So holders that have
// little keep it. shrink returns false if there was nothing to drop.
func (f *Fleet) shrink(s shrinking) bool {
	wanted := s.wanted
	for s.level > 0 && s.wanted > 0 {
		s.level -= max(s.level/4, 1)
		s.segments, s.record = -1, 0
		for more := true; more; {
			f.locked(func() { more = f.core.shrinkStep(&s) })
		}
	}
	return s.wanted < wanted
}

// shrinkStep visits some records. It returns false at the end of the pass.
func (c *core) shrinkStep(s *shrinking) bool {
	n := uint32(len(c.log.segments))
	if s.segments < 0 {
		s.segments = int(n)
	}
	kept := uint32(deadRecord) // the last set whose records stay
	for cost := 0; cost < maxCostPerStep; cost++ {
		if s.segments == 0 || s.wanted == 0 || n == 0 {
			return false
		}
		c.hand %= n
		seg := c.log.segments[c.hand]
		if seg == nil || s.record >= uint32(seg.used) {
			c.hand, s.record, s.segments = c.hand+1, 0, s.segments-1
			continue
		}
		num := seg.sets[s.record]
		switch {
		case num == deadRecord || num == kept:
		case c.isAbove(c.sets.at(num), s.level):
			c.dropRecord(c.hand<<segmentBits | s.record)
			s.wanted--
			cost += changeCost
		default:
			kept = num
		}
		s.record++
	}
	return true
}

// entriesOf yields the entries of a set that count, with their holders.
func (c *core) entriesOf(set *holderSet) iter.Seq2[*pair, *Holder] {
	return func(yield func(*pair, *Holder) bool) {
		for i := range set.pairs {
			p := &set.pairs[i]
			for holders := c.counting(p, c.oldest); holders != 0; holders &= holders - 1 {
				if !yield(p, c.numbers.list[p.word*64+uint32(bits.TrailingZeros64(holders))].holder) {
					return
				}
			}
		}
	}
}

// isAbove reports whether a set has holders, and only some with more entries than a level.
func (c *core) isAbove(set *holderSet, level int) bool {
	found := false
	for _, h := range c.entriesOf(set) {
		if found = h.entries > level; !found {
			break
		}
	}
	return found
}

// dropRecord removes a record, and with it the entries of its holders.
func (c *core) dropRecord(pos uint32) {
	seg, i := c.log.at(pos)
	for p, h := range c.entriesOf(c.sets.at(seg.sets[i])) {
		if p.groupTier&predictedIn != 0 {
			h.predicted.remove(p.groupTier &^ predictedIn)
			continue
		}
		h.entries--
		h.dropped++
	}
	c.removeRecord(pos)
}
