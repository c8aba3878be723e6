package index

import (
	"context"
	"errors"
	"math/bits"
	"runtime"
	"slices"
	"time"
)

// DumpKind is what a DumpRecord says.
type DumpKind uint8

// The kinds of records of a dump.
const (
	DumpRun         DumpKind = iota + 1 // Places hold Keys
	DumpEvict                           // Places no longer hold Keys
	DumpResetPlaces                     // Places no longer hold any key
	DumpReset                           // no key is held any more
	DumpBonus                           // Bonus says how much longer hot keys are kept
)

// MaxDumpKeys is the most keys of a DumpRecord.
const MaxDumpKeys = 1024

// Errors of dumps.
var (
	// ErrDumping refuses a dump while another one is under way.
	ErrDumping = errors.New("index: another dump is under way")
	// ErrDumpBehind ends a dump during which more was evicted on request than it can repeat.
	ErrDumpBehind = errors.New("index: more was evicted during the dump than it can keep up with")
	// ErrDumpRecord is wrapped by what is wrong with a record that is loaded.
	ErrDumpRecord = errors.New("index: bad record of a dump")
)

// DumpOptions says how an index is dumped.
type DumpOptions struct {
	// Throttle makes the dump sleep as long as it works, emit included.
	Throttle bool
}

// DumpRecord is one step of a dump. Loaded in their order into an empty index with the same places, the
// records make it hold what the dumped one held, in the same order of eviction. A record has no secret of
// the index.
type DumpRecord struct {
	Kind   DumpKind
	Places []int // ascending
	// Keys are 1 to MaxDumpKeys keys of HashLen bytes, of a DumpRun consecutive ones of a chain if Numbered.
	Keys    []byte
	HashLen int
	// Of a DumpRun. Number is that of the first key in its chain, if Numbered. Before is the key in
	// front of it, empty if that is not known. Hot says that the keys were found by a lookup or stored
	// again. Time is when they were last used: how many keys had been stored by then, modulo 2^32. It
	// never decreases, except behind a DumpReset. SameUse says that the run before has the same Time
	// and Hot, and that these keys are evicted first.
	Numbered, Hot, SameUse bool
	Number                 uint32
	Before                 []byte
	Time                   uint32
	// Of a DumpBonus: 0 to 16.
	Bonus float64
}

// A dump walks along the two lists of spans from the oldest span to the newest, always in the list whose
// next span is older. Each list keeps the span that comes next (spanList.next). So what is stored or used
// meanwhile is met at the end, and nothing has to be sorted. Spans that lookups find again and again would
// keep it from ending. So from the first span on that was used since the dump began, it marks the spans and
// copies each only once.
type dump struct {
	number uint8  // marks spans
	begun  uint32 // the clock of the policy then
	epoch  uint64 // of the index then
	late   bool   // the walk has come to what was used since
	left   int64  // work that it may do still: spans passed and keys copied
	hold   int    // the work of a hold: dumpWork, less in tests
	removals

	// What the last hold has taken and copied.
	taken    *removal
	records  []DumpRecord
	coverage []*Coverage // of each record that has no Places of its own, else nil
	keys     []byte
	group    []spanID
}

const (
	// dumpWork is the work of a hold of writing, 20 microseconds, at most one group more.
	dumpWork = 8 << 10
	// workPerDumped is copying a key.
	workPerDumped = 2
	// dumpBuffer is the bytes of the keys of a usual hold, of 32 bytes each.
	dumpBuffer = dumpWork / workPerDumped * 32
	// dumpFactor and dumpMore bound how many keys a dump copies: what was there when it began may all be
	// used meanwhile, once each, and some more stored.
	dumpFactor, dumpMore = 2, 1 << 20
	// throttleWork is how long a throttled dump works until it sleeps: a lookup may wait so long for the core.
	// With 1 ms p99 of lookups beside a dump was seen at 1.8 times that without, on two cores; with 100 µs at
	// 1.2 times. mostPause bounds the sleep, as emit may wait for a disk.
	throttleWork = 100 * time.Microsecond
	mostPause    = 100 * time.Millisecond
	// firstDumpMark is the mark of the first dump, see span.mark.
	firstDumpMark = markUsed + 1
)

// Dump calls emit with the records of what the index holds, those used least recently first. A record is
// valid during the call. Lookups and changes go on meanwhile. What is stored or used after Dump has begun
// may be missing, or come twice. If Dump returns nil, an index that has loaded the records holds no key at
// a place where Evict, ResetPlaces or Reset removed it before Dump's last hold of the lock. It may hold keys
// that were evicted to make room. A reset of places that is under way then counts as done.
//
// It fails with ErrDumping, ErrDumpBehind, the error of emit or that of ctx. It takes some 2 MiB that do not
// count for MaxBytes, and up to 16 MiB for what is removed meanwhile.
func (x *Index) Dump(ctx context.Context, o DumpOptions, emit func(*DumpRecord) error) error {
	for range touchMost / touchBatch {
		if x.dumpTouches() {
			break
		}
	}
	d, err := x.beginDump()
	if err != nil {
		return err
	}
	defer x.endDump()
	begun := time.Now()
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if done, err = x.dumpSome(d); err != nil {
			return err
		}
		if err := d.emit(emit); err != nil {
			return err
		}
		if worked := time.Since(begun); !o.Throttle || worked < throttleWork {
			runtime.Gosched() // a store may wait for the lock
		} else if !done {
			time.Sleep(min(worked, mostPause))
			begun = time.Now()
		}
	}
	return nil
}

// dumpTouches applies some of the queued stretches that lookups have found. all says that none is left.
func (x *Index) dumpTouches() (all bool) {
	x.writing.Lock()
	defer x.writing.Unlock()
	return x.applyTouches(touchBatch)
}

// beginDump begins a dump with the oldest spans.
func (x *Index) beginDump() (*dump, error) {
	d := &dump{hold: dumpWork, keys: make([]byte, dumpBuffer)}
	clear(d.keys) // the system gives the memory now, not under the lock
	d.keys = d.keys[:0]
	x.writing.Lock()
	defer x.writing.Unlock()
	if x.dumping {
		return nil, ErrDumping
	}
	if x.dumps++; x.dumps < firstDumpMark {
		x.dumps = firstDumpMark
	}
	d.number, d.begun, d.epoch, d.left = x.dumps, x.policy.clock, x.epoch.Load(), dumpFactor*x.entries+dumpMore
	if x.policy.bonus > 0 {
		d.add(DumpRecord{Kind: DumpBonus, Bonus: x.policy.bonus}, nil)
	}
	x.cold.next, x.hot.next = x.cold.oldest, x.hot.oldest
	x.dumping, x.dump = true, d
	return d, nil
}

// endDump lets the next dump begin.
func (x *Index) endDump() {
	x.writing.Lock()
	x.dumping, x.dump = false, nil
	x.writing.Unlock()
}

// dumpSome is one hold of writing: it takes what was removed since the last one, and copies the next
// spans. Behind the newest it ends the dump. A reset of places that is under way then counts as done, as
// what it has removed so far may have been copied before.
func (x *Index) dumpSome(d *dump) (done bool, _ error) {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.work = workPerCall
	if d.overflow {
		return false, ErrDumpBehind
	}
	d.taken, d.removals = d.first, removals{}
	for x.work < d.hold {
		l := x.nextDumped()
		if l == nil || d.left <= 0 {
			for _, r := range x.resetting {
				d.add(DumpRecord{Kind: DumpResetPlaces, Places: setOf(r.places)}, nil)
			}
			x.dump = nil
			return true, nil
		}
		x.dumpGroup(d, l)
	}
	return false, nil
}

// nextDumped returns the list whose next span was used less recently, nil at the end of both.
func (x *Index) nextDumped() *spanList {
	cold, hot := x.cold.next, x.hot.next
	clock := x.policy.clock
	switch {
	case cold == noSpan && hot == noSpan:
		return nil
	case hot == noSpan || cold != noSpan && clock-x.span(cold).time >= clock-x.span(hot).time:
		return &x.cold
	}
	return &x.hot
}

// dumpGroup copies the next spans of a list that were used at one time, at least one and, if they are
// more, at most MaxDumpKeys entries. The newest comes first, and the others say SameUse, so that the pieces
// of a chain are in its order.
func (x *Index) dumpGroup(d *dump, l *spanList) {
	group, entries, used := d.group[:0], 0, x.span(l.next).time
	d.late = d.late || int32(used-d.begun) >= 0 || x.epoch.Load() != d.epoch
	for l.next != noSpan && x.work < d.hold {
		s := x.span(l.next)
		if s.time != used || entries > 0 && entries+int(s.n) > MaxDumpKeys {
			break
		}
		x.work += workPerSpan
		if !d.late || s.mark != d.number {
			group = append(group, l.next)
			entries += int(s.n)
			x.work += int(s.n) * workPerDumped
		}
		if s.mark = markUsed; d.late {
			s.mark = d.number
		}
		l.next = s.newer
		d.left--
	}
	for i, id := range slices.Backward(group) {
		x.dumpSpan(d, x.span(id), i < len(group)-1)
	}
	d.group = group
	d.left -= int64(entries)
}

// dumpSpan copies the entries of a span. Keys that are linked and have one class are a run, and so are
// keys of one class of which no number is known.
func (x *Index) dumpSpan(d *dump, s *span, sameUse bool) {
	seg, i := x.at(s.first)
	for end := i + int(s.n); i < end; {
		n := seg.classRun(i, min(end-i, MaxDumpKeys))
		r := DumpRecord{Kind: DumpRun, HashLen: x.hashLen, Hot: s.hot, SameUse: sameUse, Time: s.time}
		if r.Number, r.Numbered = seg.links.number(i); r.Numbered {
			n = min(n, seg.links.linked.firstAbsent(i+1)-i)
			r.Before = d.copy(x.keyBefore(seg, i))
		} else {
			n = min(n, seg.links.nextHead(i+1)-i)
		}
		r.Keys = d.copy(seg.records(i, n))
		d.add(r, x.coverage[seg.classOf(i)])
		x.work += workPerRun
		sameUse = true
		i += n
	}
}

// keyBefore returns the key that the writer said is in front of the one at offset i, whose number is known.
// It returns nil if there is none, or if it is not in the index: then only its hash under a secret is known.
func (x *Index) keyBefore(seg *segment, i int) []byte {
	if seg.links.linked.has(i) {
		return seg.key(i - 1)
	}
	h := seg.links.head(i)
	if h == nil || h.open || h.number == 0 {
		return nil
	}
	x.work += workPerLink
	s := x.findHashed(h.before)
	if s == noSlot {
		return nil
	}
	front, k := x.at(s)
	return front.key(k)
}

// nextHead returns the first offset from i on that has a head, segmentSlots if there is none.
func (l *links) nextHead(i int) int {
	for g := i / 64; g < len(l.heads); g++ {
		heads := l.heads[g]
		if at := headAt(heads, i); at < len(heads) {
			return int(heads[at].offset)
		}
	}
	return segmentSlots
}

// copy copies a key, or several.
func (d *dump) copy(keys []byte) []byte {
	n := len(d.keys)
	d.keys = append(d.keys, keys...)
	return d.keys[n:len(d.keys):len(d.keys)]
}

// add adds a record. Its places are those of c, or r.Places if c is nil.
func (d *dump) add(r DumpRecord, c *Coverage) {
	d.records = append(d.records, r)
	d.coverage = append(d.coverage, c)
}

// emit calls emit with what the last hold has taken and copied, and clears that.
func (d *dump) emit(emit func(*DumpRecord) error) error {
	for t := d.taken; t != nil; t = t.next {
		if err := emit(&t.DumpRecord); err != nil {
			return err
		}
	}
	var places []int
	var of *Coverage // places are those of
	for i := range d.records {
		r := &d.records[i]
		if c := d.coverage[i]; c != nil {
			if c != of {
				places, of = setOf(c.places), c
			}
			r.Places = places
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	clear(d.records)
	clear(d.coverage) // of classes that may have been freed
	d.records, d.coverage, d.keys = d.records[:0], d.coverage[:0], d.keys[:0]
	return nil
}

// setOf returns the places in a bitset, ascending.
func setOf(set []uint64) (places []int) {
	for w, in := range set {
		for ; in != 0; in &= in - 1 {
			places = append(places, w*64+bits.TrailingZeros64(in))
		}
	}
	return places
}
