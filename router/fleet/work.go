package fleet

import "slices"

// Bounds of one hold of the lock by work: some tens of microseconds each.
const (
	maxSetsPerStep     = 256
	maxRecordsPerStep  = 2 * segmentLen // that are looked at
	maxRemovalsPerStep = 512
	maxMovesPerStep    = 512
	maxScanPerStep     = 4096 // segments that are looked at for one to compact
	// stepsOfClear is how many steps Clear and Close do. Later calls do the rest.
	stepsOfClear = 16
)

// sweep is the state of the work that frees memory. There are three kinds, in this order of precedence:
//
//   - sets: sets with retired holder numbers or expired predictions get a content without them. When all sets were visited,
//     the numbers are free.
//   - records: live ones whose set is empty now are removed.
//   - compaction: live records of a sparse segment move to the end of the log, in their order.
type sweep struct {
	setsActive bool
	retired    bitmap // holder numbers that were retired when the pass over the sets began
	oldest     uint32 // first epoch that counted then
	nextSet    uint32
	endSet     uint32

	nextRecord uint64 // position where the pass over the records goes on

	victim   uint32 // segment that is compacted
	compacts bool
	moved    uint32 // index in it of the next record
	search   uint32 // segment where the search for the next one begins
	giveUp   int64  // no segment to compact was found with so many dead records
}

// hasWork reports whether memory can be freed. Unless it is forced, it waits until there is enough to be worth it.
func (c *core) hasWork(force bool) bool {
	if c.copying > 0 {
		return false
	}
	return c.sweep.setsActive || c.needsSweep() || c.needsRemoval(force) || c.needsCompaction(force)
}

func (c *core) needsSweep() bool {
	return c.numbers.pending > 0 || c.firstPredicted != 0 && c.firstPredicted < c.oldest
}

func (c *core) needsRemoval(force bool) bool {
	return c.unheld > 0 && (force || c.unheld > segmentLen+c.log.records/16)
}

// needsCompaction reports whether a quarter of the records is dead.
func (c *core) needsCompaction(force bool) bool {
	if c.sweep.compacts {
		return true
	}
	least := 2*segmentLen + c.log.records/3
	if force {
		least = segmentLen + c.log.records/8
	}
	return c.log.dead > max(least, c.sweep.giveUp)
}

// work does a step of the work if there is any.
func (f *Fleet) work() { f.workSteps(1, false) }

// workSteps does at most n steps, with the lock held for one at a time. It returns false if nothing is left to do.
func (f *Fleet) workSteps(n int, force bool) bool {
	for range n {
		f.mu.Lock()
		more := f.core.step(force)
		f.mu.Unlock()
		if !more {
			return false
		}
	}
	return true
}

// collect frees all memory that can be freed.
func (f *Fleet) collect() {
	// Others make garbage meanwhile, so the steps are bounded: by the passes that all records may need.
	f.mu.Lock()
	c := f.core
	c.expire(f.epoch(f.cfg.now()))
	n := 64 + 8*len(c.log.segments) + 4*int(c.sets.next/maxSetsPerStep) + 2*int(c.log.records+c.log.dead)/maxRemovalsPerStep
	f.mu.Unlock()
	f.workSteps(n, true)
}

// dropPredictions drops the predictions of the oldest epoch, but those of the current one only if current is set: then
// nothing is predicted until it has passed. It returns false if there are none.
func (f *Fleet) dropPredictions(current bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, now := f.core, f.epoch(f.cfg.now())
	c.oldest = c.oldestAt(now)
	first := max(c.oldest, c.firstPredicted)
	if c.firstPredicted == 0 || first > now || first == now && !current {
		return false
	}
	c.oldest = first + 1
	return true
}

// step does a step of the work. It returns false if there was none.
func (c *core) step(force bool) bool {
	switch {
	case c.copying > 0:
		return false
	case c.sweep.setsActive:
		c.sweepSets()
	case c.needsSweep():
		c.beginSweep()
	case c.needsRemoval(force):
		c.removeUnheld()
	case c.needsCompaction(force):
		c.compact()
	default:
		return false
	}
	return true
}

func (c *core) beginSweep() {
	s := &c.sweep
	s.setsActive, s.nextSet, s.endSet = true, 1, c.sets.next
	s.retired = append(s.retired[:0], c.numbers.retired...)
	s.oldest = c.oldest
}

// sweepSets visits some sets. Numbers that are given out meanwhile have sets without retired holder numbers.
func (c *core) sweepSets() {
	s := &c.sweep
	end := min(s.endSet, s.nextSet+maxSetsPerStep)
	for ; s.nextSet < end; s.nextSet++ {
		c.sweepSet(s.nextSet)
	}
	if s.nextSet < s.endSet {
		return
	}
	s.setsActive = false
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
		if p.bits = c.counting(&p, c.sweep.oldest); p.bits != 0 {
			pairs = append(pairs, p)
		}
	}
	c.pairs = pairs
	if slices.Equal(pairs, e.set.pairs) {
		return
	}
	if len(pairs) == 0 {
		c.unheld += int64(e.refs)
	}
	c.sets.retarget(num, pairs)
}

// removeUnheld visits some records, and removes those whose set is empty.
func (c *core) removeUnheld() {
	s, removed := &c.sweep, 0
	for range maxRecordsPerStep {
		if int(s.nextRecord>>segmentBits) >= len(c.log.segments) {
			s.nextRecord = 0
		}
		seg, i := c.log.at(uint32(s.nextRecord))
		if seg == nil || seg.live == 0 || i >= uint32(seg.used) {
			s.nextRecord = (s.nextRecord>>segmentBits + 1) << segmentBits
			continue
		}
		s.nextRecord++
		if num := seg.sets[i]; num == deadRecord || c.sets.at(num) != c.sets.empty {
			continue
		}
		c.removeRecord(uint32(s.nextRecord - 1))
		c.unheld--
		if removed++; removed == maxRemovalsPerStep || c.unheld == 0 {
			return
		}
	}
}

// compact moves some records of a sparse segment to the end of the log.
func (c *core) compact() {
	s := &c.sweep
	if !s.compacts && !c.findVictim() {
		return
	}
	seg := c.log.segments[s.victim]
	if seg == c.log.tail {
		seg = nil // the victim was freed, and its number reused
	}
	for moves := 0; seg != nil && seg.live > 0 && s.moved < uint32(seg.used); s.moved++ {
		if seg.sets[s.moved] == deadRecord {
			continue
		}
		if moves == maxMovesPerStep || !c.log.canAppend() {
			return
		}
		from := s.victim<<segmentBits | s.moved
		to := c.log.append(seg.keys[s.moved], seg.sets[s.moved])
		c.table.move(seg.keys[s.moved], from, to)
		c.log.markDead(from)
		moves++
	}
	s.compacts = false
}

// findVictim finds a segment with at least as many dead records as the average.
func (c *core) findVictim() bool {
	s := &c.sweep
	total := c.log.records + c.log.dead
	for range min(maxScanPerStep, len(c.log.segments)) {
		if s.search++; int(s.search) >= len(c.log.segments) {
			s.search = 0
		}
		seg := c.log.segments[s.search]
		if seg == nil || seg == c.log.tail || seg.used == seg.live || int64(seg.live)*total > int64(seg.used)*c.log.records {
			continue
		}
		s.victim, s.moved, s.compacts, s.giveUp = s.search, 0, true, 0
		return true
	}
	s.giveUp = c.log.dead + segmentLen
	return false
}
