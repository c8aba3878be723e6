package index

import (
	"math"

	"github.com/hitline/hitline/simd"
)

// Run says that the next N keys of a lookup have the same coverage. Coverage is
// nil for keys that are absent.
type Run struct {
	N        int
	Coverage *Coverage
}

// Cursor is the state of one lookup between batches. The zero value is ready for
// Begin; a Cursor is reused for any number of lookups, one at a time.
type Cursor struct {
	// Quiet, set before Begin, leaves the order of eviction as it is: what the
	// lookup finds does not count as used.
	Quiet bool

	hashLen  int
	epoch    uint64
	next     slot // where the next key is expected, noSlot if unknown
	logStep  int  // slots between the records of consecutive keys, see matchNext
	window   int  // keys compared at once
	viaTable int  // keys in a row found through the table
	found    []stretch
}

const (
	// maxStretches is how many stretches of a lookup count as used, from the front: of
	// a chain in more pieces the end is not worth the time. A Cursor keeps room for as many as
	// its lookups have needed, 3 KiB at most. It belongs to a lookup under way, not to a
	// connection, so there are few.
	maxStretches = 256
	// firstStretches is how many a Cursor has room for at first: three cache lines, so that
	// lookups on other cores write to others. Doubled, it comes to maxStretches.
	firstStretches = 16
	// holdKeys is how many keys of runs are compared under one hold of the lock before writers
	// are let in: some five microseconds. Writers wait so long, and new lookups behind them.
	holdKeys = 2048
	// What else a lookup does takes as long as comparing so many keys of a run: beginning one, a
	// group of slots by its digest from memory, and asking the table for a key, alone or in a batch.
	keysPerCompare = 8
	keysPerGroup   = 32
	keysPerLookup  = 32
	keysPerBatched = 12
	// maxStride is the largest stride that bytes between keys and slots between records have room for.
	maxStride = min(math.MaxInt32, math.MaxInt/maxHashLen)
	// firstWindow is how many keys are compared at first. It grows eightfold while
	// all agree, so that little is read in vain where a request leaves a chain.
	firstWindow = 64
	// batchFrom is how many keys in a row found through the table make a lookup look for a batch at
	// once instead of following the log.
	batchFrom = 4
	// scatteredKeys is how many keys a lookup asks for in batches before it looks at the
	// time it has held the lock: that takes about as long as comparing a run of a whole segment.
	scatteredKeys = 384
)

// Begin starts a lookup of keys of hashLen bytes.
func (x *Index) Begin(c *Cursor, hashLen int) {
	c.hashLen, c.next, c.logStep, c.window, c.viaTable = hashLen, noSlot, 1, firstWindow, 0
	c.epoch = x.epoch.Load()
	c.found = c.found[:0]
}

// Probe reports the presence of consecutive keys of a chain. The first key asked
// is at the front of keys, each further one stride hashes behind the one before;
// it fills runs from the front and returns how many it filled and how many keys
// they cover. It stops when runs is full, when the keys end, or behind the first
// absent key when stopAtAbsent is set; call it again with the rest.
//
// clean is false when the index was reset since Begin: what earlier calls told is
// void, and this one's runs are about the index as it is now. Keys of another length
// than the index holds are absent, all together in one step. keys is only borrowed. If the hash
// length or stride is below 1, or no stride of a chain is so large, it covers no key.
func (x *Index) Probe(c *Cursor, keys []byte, stride int, runs []Run, stopAtAbsent bool) (filled, covered int, clean bool) {
	if c.hashLen < 1 || stride < 1 || stride > maxStride {
		return 0, 0, c.epoch == x.epoch.Load()
	}
	r := x.mu.RLock()
	defer x.mu.RUnlock(r)
	clean = x.resumeCursor(c)
	p := probing{x: x, c: c, keys: keys, step: stride * c.hashLen, stride: stride, runs: runs, stop: stopAtAbsent, left: holdKeys}
	for p.more() {
		if p.left <= 0 {
			x.mu.pass(r)
			p.left = holdKeys
			if !x.resumeCursor(c) { // what was found is gone
				clean = false
				runs[0], p.filled = Run{N: p.covered}, 1
				if stopAtAbsent {
					break
				}
			}
		}
		p.advance()
	}
	return p.filled, p.covered, clean
}

// resumeCursor makes a cursor fit the index as it is now, under the lock. It
// returns false when there was a reset.
func (x *Index) resumeCursor(c *Cursor) bool {
	epoch := x.epoch.Load()
	if c.epoch == epoch {
		c.next = x.valid(c.next)
		return true
	}
	c.epoch, c.next = epoch, noSlot
	c.found = c.found[:0]
	return false
}

// probing is one call of Probe.
type probing struct {
	x            *Index
	c            *Cursor
	keys         []byte // those still to do
	step, stride int    // between keys, in bytes and in hashes
	runs         []Run
	stop         bool // at the first absent key
	filled       int  // runs
	covered      int  // keys
	stopped      bool
	left         int // keys to compare under this hold of the lock
}

func (p *probing) more() bool {
	return len(p.keys) >= p.c.hashLen && p.filled < len(p.runs) && !p.stopped
}

// advance goes on where the log goes on, and otherwise asks the table.
func (p *probing) advance() {
	if p.c.next != noSlot && p.matchNext() > 0 {
		return
	}
	switch {
	case p.c.hashLen != p.x.hashLen:
		p.c.next = noSlot
		n := p.numLeft()
		if p.stop {
			n = 1
		}
		p.emit(n, noClass)
	case p.c.viaTable >= batchFrom:
		p.locateBatch()
	default:
		p.locate()
	}
}

// numLeft returns how many keys are still to do. There is one.
func (p *probing) numLeft() int { return (len(p.keys)-p.c.hashLen)/p.step + 1 }

// emit adds n keys of a class to the last run if their coverage is the same, or
// to a new run.
func (p *probing) emit(n int, id class) {
	cov := p.x.coverage[id]
	p.covered += n
	p.keys = p.keys[min(n*p.step, len(p.keys)):]
	p.stopped = cov == nil && p.stop
	if p.filled > 0 && p.runs[p.filled-1].Coverage == cov {
		p.runs[p.filled-1].N += n
		return
	}
	p.runs[p.filled] = Run{N: n, Coverage: cov}
	p.filled++
}

// matchNext compares keys with the records from the expected slot on, as far as they agree
// and are of one class, and returns how many that are: by the digests of whole groups, and
// key by key at their edges and where digests differ.
//
// Where a group's keys are every k-th of a chain that other groups store in
// full, its records are k slots apart.
func (p *probing) matchNext() int {
	c := p.c
	seg, i := p.x.at(c.next)
	id := seg.classOf(i)
	if id == noClass {
		c.next = noSlot
		return 0
	}
	inSegment := min(p.numLeft(), (segmentSlots-i+c.logStep-1)/c.logStep)
	byGroups := p.x.digests && c.logStep == 1 && p.step == c.hashLen
	equal := 0
	if byGroups && i%groupSlots == 0 {
		equal = p.matchGroups(seg, i, inSegment/groupSlots, id)
	}
	if equal == 0 {
		n := min(c.window, inSegment)
		if byGroups { // up to the next group
			n = min(n, groupSlots-i%groupSlots)
		}
		equal = p.matchKeys(seg, i, n)
	}
	if equal == 0 {
		c.next = noSlot
		return 0
	}
	c.follow(c.next, equal)
	if c.next&segmentMask < slot(c.logStep) { // the next segment
		c.next = p.x.valid(c.next)
	}
	p.emit(equal, id)
	return equal
}

// matchGroups compares at most n groups, from the one at offset i on, by their digests, and
// returns how many keys those have that agree and are of a class.
func (p *probing) matchGroups(seg *segment, i, n int, id class) (equal int) {
	size := groupSlots * p.c.hashLen
	first := i / groupSlots
	k := 0
	for k < n && seg.groupClass[first+k] == id && p.x.secret.Sum(p.keys[k*size:][:size]).Equal(seg.digests[first+k]) {
		k++
	}
	p.left -= keysPerCompare + (k+1)*keysPerGroup
	return k * groupSlots
}

// matchKeys compares at most n keys with the records from offset i on, and returns how many
// agree and are of one class.
func (p *probing) matchKeys(seg *segment, i, n int) (equal int) {
	c := p.c
	if c.logStep == 1 {
		n = seg.classRun(i, n)
	} else {
		n = runStrided(seg.class[i:], c.logStep, n)
	}
	records := seg.records(i, min(n*c.logStep, segmentSlots-i))
	equal = equalPrefix(records, c.logStep*c.hashLen, p.keys, p.step, c.hashLen)
	p.left -= keysPerCompare + equal + n/8
	if equal < n {
		c.window = firstWindow
	} else {
		c.window = min(c.window*8, segmentSlots)
	}
	return equal
}

// equalPrefix returns how many leading keys of two arrays are equal. Those of records are recordStep bytes apart, those
// of keys keyStep.
func equalPrefix(records []byte, recordStep int, keys []byte, keyStep, hashLen int) int {
	if recordStep == hashLen && keyStep == hashLen {
		return simd.EqualPrefix(records, keys, hashLen)
	}
	n := 0
	for len(records) >= hashLen && len(keys) >= hashLen && string(records[:hashLen]) == string(keys[:hashLen]) {
		records, keys = records[min(recordStep, len(records)):], keys[min(keyStep, len(keys)):]
		n++
	}
	return n
}

// runStrided returns how many leading ones of every step-th of n classes are equal to the first one. n is at least 1.
func runStrided(classes []class, step, n int) int {
	for k := 1; k < n; k++ {
		if classes[k*step] != classes[0] {
			return k
		}
	}
	return n
}

// follow notes that n records from a slot on were found, and goes on behind.
func (c *Cursor) follow(first slot, n int) {
	c.recordFound(first, (n-1)*c.logStep+1)
	c.next = first + slot(n*c.logStep)
	if n >= batchFrom {
		c.viaTable = 0
	}
}

// locate finds the front key by its hash.
func (p *probing) locate() {
	c := p.c
	key := p.keys[:c.hashLen:c.hashLen]
	c.viaTable++
	p.left -= keysPerLookup
	s := p.x.find(p.x.hash(key), key)
	if s == noSlot {
		c.next = noSlot
		p.emit(1, noClass)
		return
	}
	c.next = s
	if p.matchNext() == 1 && p.stride > 1 { // perhaps the other way
		c.logStep = p.stride + 1 - c.logStep
		c.next = p.x.valid(s + slot(c.logStep))
	}
}

// locateBatch finds keys by their hashes, part by part, while few follow each other.
func (p *probing) locateBatch() {
	c := p.c
	k := keyArray{p.keys, p.step, c.hashLen, min(p.numLeft(), scatteredKeys)}
	p.left -= keysPerLookup
	behind := 0
	var b batch
	for g := 0; g*partKeys < k.n && p.filled < len(p.runs) && !p.stopped; g++ {
		slots := p.x.findPart(&b, &k, g)
		p.left -= len(slots) * keysPerBatched
		behind = 0
		for i := 0; i < len(slots) && p.filled < len(p.runs) && !p.stopped; {
			s := slots[i]
			if s == noSlot {
				c.next = noSlot
				p.emit(1, noClass)
				i++
				continue
			}
			seg, j := p.x.at(s)
			id, run := seg.classOf(j), 0
			for ; i < len(slots) && slots[i] != noSlot; i, run = i+1, run+1 {
				s = slots[i]
				if seg, j = p.x.at(s); seg.classOf(j) != id {
					break
				}
				if s == c.next {
					behind++
				}
				c.next = s + slot(c.logStep)
				c.recordFound(s, 1)
			}
			p.emit(run, id)
		}
		if 2*behind >= len(slots) {
			c.viaTable = 0
			break
		}
	}
	c.next = p.x.valid(c.next)
}

// recordFound adds a stretch of n slots that were found, or every k-th of them.
func (c *Cursor) recordFound(first slot, n int) {
	if c.Quiet {
		return
	}
	if last := len(c.found) - 1; last >= 0 {
		if f := &c.found[last]; f.first+slot(f.n) == first {
			f.n += uint32(n)
			return
		}
	}
	if c.found == nil {
		c.found = make([]stretch, 0, firstStretches)
	}
	if len(c.found) < maxStretches {
		c.found = append(c.found, stretch{first, uint32(n)})
	}
}

// End finishes a lookup: what it found counts as used. It returns false when the
// index was reset since Begin.
func (x *Index) End(c *Cursor) (clean bool) {
	clean = c.epoch == x.epoch.Load()
	if clean && !c.Quiet {
		x.queueTouches(c.found, c.epoch)
	}
	c.Drop()
	return clean
}

// Drop abandons a lookup, as when its connection is cut. Nothing counts as used.
func (c *Cursor) Drop() { c.found, c.next = c.found[:0], noSlot }

// Held returns the bytes of memory that a Cursor holds besides itself.
func (c *Cursor) Held() int { return cap(c.found) * stretchBytes }
