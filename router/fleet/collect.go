package fleet

import "slices"

// Bounds of one hold of the lock by collectStep: some tens of microseconds.
const (
	maxSetsPerStep = 256
	maxCostPerStep = 2 * segmentLen // of records: 1 for a look at one, changeCost for one that is removed or moved
	changeCost     = 16
	// stepsOfClear is how many steps Clear and Close do. Later calls do the rest.
	stepsOfClear = 16
)

// collection is the state of what frees memory step by step: passes over all sets, and passes over all records.
type collection struct {
	sweeping bool
	retired  bitmap // holder numbers that were retired when the pass over the sets began
	oldest   uint32 // first epoch that counted then
	nextSet  uint32
	endSet   uint32

	cleaning   bool
	compacting bool   // the segment is sparse: its live records move to the end of the log
	segment    uint32 // of the next record in the pass
	record     uint32 // its index in the segment
	endSegment uint32
}

// moves reports whether the records of the segment of a position are being moved away.
func (s *collection) moves(pos uint32) bool {
	return s.cleaning && s.compacting && pos>>segmentBits == s.segment
}

// collectStep does a step of what frees memory. Unless it is forced, it waits until there is enough to be worth it. It
// returns false if there was nothing to do.
func (c *core) collectStep(force bool) bool {
	s := &c.collection
	switch {
	case c.copying > 0:
		return false
	case s.sweeping:
		c.sweepSets()
	case c.numbers.pending > 0 || c.firstPredicted != 0 && c.firstPredicted < c.oldest:
		s.sweeping, s.nextSet, s.endSet, s.oldest = true, 1, c.sets.next, c.oldest
		s.retired = append(s.retired[:0], c.numbers.retired...)
	case s.cleaning:
		c.cleanRecords(force)
	case c.needsCleaning(force):
		s.cleaning, s.segment, s.record, s.endSegment = true, 0, 0, uint32(len(c.log.segments))
	default:
		return false
	}
	return true
}

// locked calls do with the lock held. After a panic others do not wait for it.
func (f *Fleet) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// readLocked is locked for what changes nothing.
func (f *Fleet) readLocked(do func()) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	do()
}

// inTurns repeats a step until it returns false. Others get the lock and the processor between two of them.
func (f *Fleet) inTurns(pause func() func(), step func() bool) {
	for more := true; more; {
		f.locked(func() { more = step() })
		pause()()
	}
}

func noPause() (resume func()) { return func() {} }

// collectSteps does at most n steps, with the lock held for one at a time.
func (f *Fleet) collectSteps(pause func() func(), n int, force bool) {
	f.inTurns(pause, func() bool { n--; return f.core.collectStep(force) && n > 0 })
}

// collect frees all memory that can be freed. Others make garbage meanwhile, so the steps are bounded: by the passes that
// all records may need.
func (f *Fleet) collect(pause func() func()) {
	var n int
	f.locked(func() {
		c := f.core
		c.expire(f.epoch())
		n = 64 + 4*int(c.sets.next/maxSetsPerStep) + int(4*(c.log.records+c.log.dead)*(1+changeCost)/maxCostPerStep)
	})
	f.collectSteps(pause, n, true)
}

// dropPredictions drops the predictions of the oldest epoch, but those of the current one only if current is set: then
// nothing is predicted until it has passed. It returns false if there are none.
func (f *Fleet) dropPredictions(current bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, now := f.core, f.epoch()
	first := max(c.expire(now), c.firstPredicted)
	if c.firstPredicted == 0 || first > now || first == now && !current {
		return false
	}
	c.oldest = first + 1
	return true
}

// sweepSets visits some sets. Numbers that are given out meanwhile have sets without retired holder numbers.
func (c *core) sweepSets() {
	s := &c.collection
	end := min(s.endSet, s.nextSet+maxSetsPerStep)
	for ; s.nextSet < end; s.nextSet++ {
		c.sweepSet(s.nextSet)
	}
	if s.nextSet < s.endSet {
		return
	}
	s.sweeping = false
	c.numbers.freeAll(s.retired)
	if c.firstPredicted = s.oldest; c.lastPredicted < s.oldest {
		c.firstPredicted = 0
	}
}

// sweepSet removes from a set what does not count any more.
func (c *core) sweepSet(num uint32) {
	e := c.sets.entry(num)
	if e.set == nil || len(e.set.pairs) == 0 {
		return
	}
	pairs := c.pairs[:0]
	for i := range e.set.pairs {
		p := e.set.pairs[i]
		if p.bits = c.counting(&p, c.collection.oldest); p.bits != 0 {
			pairs = append(pairs, p)
		}
	}
	c.pairs = pairs
	if slices.Equal(pairs, e.set.pairs) {
		return
	}
	if len(pairs) == 0 {
		c.emptyRecords += int64(e.refs)
	}
	c.sets.retarget(num, pairs)
}

// needsCleaning reports whether some 6% of the records are empty or a quarter is dead, or less if it is forced. Dead ones
// of the tail cannot be freed.
func (c *core) needsCleaning(force bool) bool {
	dead := c.log.dead
	if tail := c.log.tail; tail != nil {
		dead -= int64(tail.used - tail.live)
	}
	if force {
		return c.emptyRecords > 0 || dead > segmentLen+c.log.records/8
	}
	return c.emptyRecords > segmentLen+c.log.records/16 || dead > 2*segmentLen+c.log.records/3
}

// cleanRecords visits some records. It removes those whose set is empty, and moves those of sparse segments to the end of
// the log, in their order.
func (c *core) cleanRecords(force bool) {
	s := &c.collection
	for cost := 0; cost < maxCostPerStep; cost++ {
		if s.segment >= s.endSegment {
			s.cleaning = false
			return
		}
		seg := c.log.segments[s.segment]
		if s.record == 0 {
			s.compacting = seg != nil && seg.isSparse(force)
		}
		// A segment may have been freed, and its number be that of the tail now.
		if isTail := seg == c.log.tail; seg == nil || s.record >= uint32(seg.used) || c.emptyRecords == 0 && (!s.compacting || isTail) {
			s.segment, s.record = s.segment+1, 0
			continue
		}
		from := s.segment<<segmentBits | s.record
		num, key := seg.sets[s.record], seg.keys[s.record]
		s.record++
		switch {
		case num == deadRecord:
		case c.sets.at(num) == c.sets.empty:
			c.removeRecord(from)
			c.emptyRecords--
			cost += changeCost
		case s.compacting && seg != c.log.tail:
			c.table.move(key, from, c.log.append(key, num))
			c.log.markDead(from)
			cost += changeCost
		}
	}
}

// isSparse reports whether as large a part of a segment is dead as needsCleaning asks of all: there is such a segment.
func (s *segment) isSparse(force bool) bool {
	dead := s.used - s.live
	return dead*4 >= s.used || force && dead*9 >= s.used
}
