package index

import (
	"slices"
	"unsafe"
)

// Trail is the state of lookups by anchors: hashes of which each stands for the
// whole chain in front of it. The zero value is ready; a Trail is reused for any
// number of lookups and belongs to one goroutine at a time.
type Trail struct {
	// Runs are what the last Trace that came to its end found, the last one of the
	// chain first. Valid until the next Trace.
	Runs []TrailRun

	keys  []byte // of the last Recite
	found []stretch
	epoch uint64
	work  int
	// Of a Trace: the next block to follow, and the hash of its key once the first is
	// followed.
	number uint32
	front  uint64
}

// TrailRun says that blocks From to From+N-1 of a chain have the same coverage.
type TrailRun struct {
	From, N  uint32
	Coverage *Coverage
}

const (
	// trailRuns bounds the runs of one Trace, to 400 KiB and some two milliseconds in all
	// its steps: a prompt in more pieces, as where groups hold every second block of a very
	// long one, is looked up by its hashes in less time.
	trailRuns = 1 << 14
	// keepRuns and keepRecital are what a Trail keeps between lookups, in runs and
	// bytes.
	keepRuns    = 256
	keepRecital = 64 << 10
	// pieceRuns is how many runs a trace takes at most before it looks whether writers wait.
	pieceRuns = 128
	// MaxRecital is how many keys Recite takes at most: a quarter of a megabyte of the longest.
	MaxRecital = 4096
)

// Trace follows confirmed links from a key, block number of its chain, to the
// chain's beginning, and puts what the index holds of blocks 0 to number into
// t.Runs. It ends when it has cost about so much work, see Cursor.Work; done is false
// then, and ResumeTrace goes on. At the end it returns 0. Where a link is missing or not
// confirmed it returns how far down it came, the number of the lowest block whose link is
// sure, and number+1 if not even the key's own is; t.Runs means nothing then.
//
// Each block was there, or was not, at some moment between the call of Trace and the
// return of the last ResumeTrace.
func (x *Index) Trace(t *Trail, key []byte, number uint32, work int) (down uint32, done bool) {
	t.Runs, t.found = t.Runs[:0], t.found[:0]
	r := x.mu.RLock()
	defer x.mu.RUnlock(r)
	t.epoch = x.epoch.Load()
	t.number = number
	t.work += workPerCall + workPerKey
	return x.follow(t, r, x.find(x.hash(key), key), work)
}

// ResumeTrace goes on with a Trace or ResumeTrace that was not done. After a reset
// nothing more is found. What else has changed in between is as harmless as it is during
// one call, which does not hold the lock all the time either: the trail keeps the hash and
// the number of the block in front, no slot. It is found by the hash if it is there, and
// its own number, confirmed, decides whether the trace goes on.
func (x *Index) ResumeTrace(t *Trail, work int) (down uint32, done bool) {
	r := x.mu.RLock()
	defer x.mu.RUnlock(r)
	t.work += workPerCall
	if t.epoch != x.epoch.Load() {
		return t.number + 1, true
	}
	return x.follow(t, r, x.findHashed(t.front), work)
}

// follow goes on with a trace at slot s, which may be that of block t.number. One piece
// of the chain may exceed the work, see take. It holds the lock, in stripe r, at the end as at
// the beginning, and not all the time.
func (x *Index) follow(t *Trail, r *readerStripe, s slot, work int) (down uint32, done bool) {
	most, hold := t.work+work, t.work+holdWork
	for s != noSlot {
		seg, i := x.at(s)
		l := &seg.links
		if have, ok := l.number(i); !ok || have != t.number {
			break
		}
		start := l.start(i)
		low := max(l.sure.lastAbsent(i)+1, start)
		if low > i || len(t.Runs) > trailRuns { // the latter: it is in too many pieces
			break
		}
		before := t.work
		n := t.take(x, s, i-low+1, t.number)
		r.countRead(t.work - before)
		t.number -= uint32(n - 1)
		switch first := i - n + 1; {
		case first > low:
			t.front = x.hash(seg.key(first - 1))
		case low > start:
			return t.number, true
		case t.number == 0:
			return 0, true
		default:
			t.front = l.head(start).before // not an open one, as it is sure
		}
		t.number--
		if t.work >= most {
			return t.number + 1, false
		}
		if t.work >= hold {
			hold = t.work + holdWork
			x.mu.pass(r)
			if x.epoch.Load() != t.epoch {
				break
			}
		}
		s = x.findHashed(t.front)
	}
	return t.number + 1, true
}

// take adds up to n entries, of which the one in slot last is block number, and returns how
// many. If they are more than pieceRuns runs, it adds the last pieceRuns entries only.
func (t *Trail) take(x *Index, last slot, n int, number uint32) int {
	seg, i := x.at(last)
	runs := len(t.Runs)
	from := number - uint32(n) + 1
	t.work += workPerLink + n/8
	for at := i - n + 1; at <= i; {
		if len(t.Runs)-runs == pieceRuns {
			t.Runs = t.Runs[:runs]
			return t.take(x, last, pieceRuns, number)
		}
		run := seg.classRun(at, i+1-at)
		t.work += workPerRun
		t.Runs = append(t.Runs, TrailRun{From: from, N: uint32(run), Coverage: x.coverage[seg.classOf(at)]})
		from += uint32(run)
		at += run
	}
	slices.Reverse(t.Runs[runs:])
	t.found = append(t.found, stretch{last - slot(n) + 1, uint32(n), 1})
	return n
}

// findHashed finds the key that has a hash; noSlot if several have. It is the wrong key
// if the right one is gone and another one has its hash: of N entries one has, by chance,
// in N of 2^64 cases.
func (x *Index) findHashed(h uint64) (found slot) {
	found = noSlot
	x.table.cells(h, func(s slot) bool {
		seg, i := x.at(s)
		if x.hash(seg.key(i)) != h {
			return false
		}
		several := found != noSlot
		if found = s; several {
			found = noSlot
		}
		return several
	})
	return found
}

// Recite returns the keys that those who stored say are blocks number-n+1 to
// number of the chain that ends in key, in order, if the block in front of them is
// said to be before (of no meaning if they begin with block 0). n is at most
// MaxRecital. The keys are copied: valid until the next call. Each was there, with this
// link, at some moment during the call.
func (x *Index) Recite(t *Trail, before, key []byte, number uint32, n int) (keys []byte, ok bool) {
	if n < 1 || n > MaxRecital || uint32(n-1) > number {
		return nil, false
	}
	hashLen := len(key)
	t.keys = slices.Grow(t.keys[:0], n*hashLen)[:n*hashLen]
	r := x.mu.RLock()
	defer x.mu.RUnlock(r)
	epoch := x.epoch.Load()
	t.work += workPerCall + workPerKey
	s := x.find(x.hash(key), key)
	hold := t.work + holdWork
	for left := n; s != noSlot; {
		seg, i := x.at(s)
		l := &seg.links
		run := min(i-l.start(i)+1, left)
		first := i - run + 1
		left -= run
		t.work += workPerLink + run
		r.countRead(workPerLink + run)
		copy(t.keys[left*hashLen:], seg.records(first, run))
		number -= uint32(run) - 1
		said := x.linkOf(s - slot(run) + 1)
		switch {
		case !said.known || said.number != number:
			return nil, false
		case left == 0:
			return t.keys, number == 0 || !said.open && said.before == x.hash(before)
		case said.open:
			return nil, false
		}
		if t.work >= hold {
			x.mu.pass(r)
			t.work += workPerCall
			hold = t.work + holdWork
			if x.epoch.Load() != epoch {
				return nil, false
			}
		}
		s = x.findHashed(said.before)
		number--
	}
	return nil, false
}

// Taken forgets the runs that the last Trace found, so that a lookup that is not
// finished keeps little, but not what Use says of them.
func (t *Trail) Taken() {
	slices.Reverse(t.found)
	t.found = t.found[:min(len(t.found), maxStretches)]
	clear(t.Runs) // they point to coverage that a reset may drop
	t.Runs = t.Runs[:0]
	if cap(t.Runs) > keepRuns || cap(t.found) > maxStretches {
		t.Runs, t.found = nil, slices.Clone(t.found)
	}
}

// Use says that what was Taken was used.
func (x *Index) Use(t *Trail) {
	x.queueTouches(t.found[:min(len(t.found), maxStretches)], t.epoch)
	t.Drop()
}

// Held returns the bytes of memory that a Trail holds.
func (t *Trail) Held() int {
	return cap(t.keys) + cap(t.Runs)*int(unsafe.Sizeof(TrailRun{})) + cap(t.found)*stretchBytes
}

// Drop forgets what the last Trace found, and gives back unusual amounts of memory.
func (t *Trail) Drop() {
	clear(t.Runs) // they point to coverage that a reset may drop
	t.Runs, t.found = t.Runs[:0], t.found[:0]
	if cap(t.Runs) > keepRuns {
		t.Runs, t.found = nil, nil
	}
	if cap(t.keys) > keepRecital {
		t.keys = nil
	}
}
