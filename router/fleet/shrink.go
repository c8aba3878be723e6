package fleet

import (
	"iter"
	"math/bits"
)

// shrinking is a pass over the log that drops blocks.
type shrinking struct {
	level    int    // of Holder.size: holders of more lose blocks
	record   uint32 // the next one of segment core.hand
	segments int    // how many are left in the pass
	wanted   int64  // how many blocks, or sets that take as much memory, are still to go
}

// makeRoom frees memory at the bound, for a prediction or for events. Unless it is the first try, which only collects, it
// drops something: of predictions and the largest holder what is more, and of predictions the oldest first. It waits for
// snapshots, as nothing is freed while one is copied. makeRoom returns false if there was nothing to drop.
func (f *Fleet) makeRoom(pause func() func(), isFirst, predicts bool) bool {
	resume := pause()
	f.room.Lock()
	defer f.room.Unlock()
	resume()
	defer f.collect(pause)
	switch {
	case isFirst:
		return true
	case predicts:
		return f.dropPredictions(false)
	}
	var s shrinking
	predicted := 0
	f.readLocked(func() {
		s.wanted = (f.core.log.records+f.core.sets.size/blockBytes)/8 + 2*segmentLen
		oldest := f.oldest()
		for _, h := range f.holders {
			s.level = max(s.level, h.size())
			predicted += h.predicted.count(oldest)
		}
	})
	return predicted >= s.level && f.dropPredictions(true) || f.shrink(pause, s) || f.dropPredictions(true)
}

// shrink drops an eighth of all blocks and some: so many that compaction frees memory. It drops those that only the
// largest holders have, in the order of the log from where it ended last: it first visits holders of more than three
// quarters of the size of the largest one, and lowers this level until enough has gone. So holders that have
// little keep it. shrink returns false if there was nothing to drop.
func (f *Fleet) shrink(pause func() func(), s shrinking) bool {
	wanted := s.wanted
	for s.level > 0 && s.wanted > 0 {
		s.level -= max(s.level/4, 1)
		s.segments, s.record = -1, 0
		f.inTurns(pause, func() bool {
			before := s.wanted
			more := f.core.shrinkStep(&s)
			if s.wanted < before && f.cfg.Dropped != nil {
				f.cfg.Dropped()
			}
			return more
		})
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
		if s.segments == 0 || s.wanted <= 0 || n == 0 {
			return false
		}
		c.hand %= n
		seg := c.log.segments[c.hand]
		if seg == nil || s.record >= uint32(seg.used) {
			c.hand, s.record, s.segments = c.hand+1, 0, s.segments-1
			continue
		}
		num := seg.sets[s.record]
		set := c.sets.at(num)
		switch {
		case num == deadRecord || num == kept:
		case c.isAbove(set, s.level):
			s.wanted--
			if c.sets.entry(num).refs == 1 {
				s.wanted -= int64(set.blocks())
			}
			c.dropRecord(c.hand<<segmentBits | s.record)
			cost += changeCost + len(set.pairs)
		default:
			kept = num
			cost += len(set.pairs)
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

// isAbove reports whether a set has holders, and only some of a size above a level.
func (c *core) isAbove(set *holderSet, level int) bool {
	found := false
	for _, h := range c.entriesOf(set) {
		if found = h.size() > level; !found {
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
