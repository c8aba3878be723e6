package fleet

import "slices"

// Bounds of one hold of the lock by collectStep: some tens of microseconds each.
const (
	maxSetsPerStep     = 256
	maxRecordsPerStep  = 2 * segmentLen // that are looked at
	maxRemovalsPerStep = 512
	maxMovesPerStep    = 512
	maxScanPerStep     = 4096 // segments that are looked at for one to compact
	// stepsOfClear is how many steps Clear and Close do. Later calls do the rest.
	stepsOfClear = 16
)

// collection is the state of what frees memory step by step. There are three kinds of steps, in this order:
//
//   - sets: sets with retired holder numbers or expired predictions get a content without them. When all sets were
//     visited, the numbers are free.
//   - records: live ones whose set is empty now are removed.
//   - compaction: live records of a sparse segment move to the end of the log, in their order.
type collection struct {
	sweeping bool
	retired  bitmap // holder numbers that were retired when the pass over the sets began
	oldest   uint32 // first epoch that counted then
	nextSet  uint32
	endSet   uint32

	nextRecord uint64 // position where the pass over the records goes on

	compacting bool
	segment    uint32 // that is compacted
	moved      uint32 // index in it of the next record
	search     uint32 // segment where the search for the next one begins
}

// collectStep does a step of what frees memory. Unless it is forced, it waits until there is enough to be worth it. It
// returns false if there was nothing to do.
func (c *core) collectStep(force bool) bool {
	switch {
	case c.copying > 0:
		return false
	case c.collection.sweeping:
		c.sweepSets()
	case c.needsSweep():
		c.beginSweep()
	case c.needsRemoval(force):
		c.removeUnheld()
	case c.needsCompaction(force):
		c.compact(force)
	default:
		return false
	}
	return true
}

// collectSteps does at most n steps, with the lock held for one at a time.
func (f *Fleet) collectSteps(n int, force bool) {
	for more := true; more && n > 0; n-- {
		f.mu.Lock()
		more = f.core.collectStep(force)
		f.mu.Unlock()
	}
}

// collect frees all memory that can be freed. Others make garbage meanwhile, so the steps are bounded: by the passes that
// all records may need.
func (f *Fleet) collect() {
	f.mu.Lock()
	c := f.core
	c.expire(f.epoch())
	n := 64 + 8*len(c.log.segments) + 4*int(c.sets.next/maxSetsPerStep) + 2*int(c.log.records+c.log.dead)/maxRemovalsPerStep
	f.mu.Unlock()
	f.collectSteps(n, true)
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

func (c *core) needsSweep() bool {
	return c.numbers.pending > 0 || c.firstPredicted != 0 && c.firstPredicted < c.oldest
}

func (c *core) needsRemoval(force bool) bool {
	return c.unheld > 0 && (force || c.unheld > segmentLen+c.log.records/16)
}

// needsCompaction reports whether a quarter of the records is dead, or a ninth if it is forced. Those of the tail cannot
// be moved.
func (c *core) needsCompaction(force bool) bool {
	dead := c.log.dead
	if tail := c.log.tail; tail != nil {
		dead -= int64(tail.used - tail.live)
	}
	if force {
		return c.collection.compacting || dead > segmentLen+c.log.records/8
	}
	return c.collection.compacting || dead > 2*segmentLen+c.log.records/3
}

func (c *core) beginSweep() {
	s := &c.collection
	s.sweeping, s.nextSet, s.endSet = true, 1, c.sets.next
	s.retired = append(s.retired[:0], c.numbers.retired...)
	s.oldest = c.oldest
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
		c.unheld += int64(e.refs)
	}
	c.sets.retarget(num, pairs)
}

// removeUnheld visits some records, and removes those whose set is empty.
func (c *core) removeUnheld() {
	s, removed := &c.collection, 0
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
func (c *core) compact(force bool) {
	s := &c.collection
	if !s.compacting && !c.findSparse(force) {
		return
	}
	seg := c.log.segments[s.segment]
	if seg == c.log.tail {
		seg = nil // the segment was freed, and its number reused
	}
	for moves := 0; seg != nil && seg.live > 0 && s.moved < uint32(seg.used); s.moved++ {
		if seg.sets[s.moved] == deadRecord {
			continue
		}
		if moves == maxMovesPerStep {
			return
		}
		from := s.segment<<segmentBits | s.moved
		to := c.log.append(seg.keys[s.moved], seg.sets[s.moved])
		c.table.move(seg.keys[s.moved], from, to)
		c.log.markDead(from)
		moves++
	}
	s.compacting = false
}

// findSparse finds a segment of whose records as large a part is dead as needsCompaction asks of all: there is one.
func (c *core) findSparse(force bool) bool {
	s, part := &c.collection, int32(4)
	if force {
		part = 9
	}
	for range min(maxScanPerStep, len(c.log.segments)) {
		s.search = (s.search + 1) % uint32(len(c.log.segments))
		seg := c.log.segments[s.search]
		if seg != nil && seg != c.log.tail && (seg.used-seg.live)*part >= seg.used {
			s.segment, s.moved, s.compacting = s.search, 0, true
			return true
		}
	}
	return false
}
