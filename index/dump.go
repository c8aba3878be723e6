package index

import (
	"context"
	"errors"
	"math/bits"
	"runtime"
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
// records make it hold what the dumped one held, and evict it in the same order but for neighbours in the log. A
// record has no secret of the index.
type DumpRecord struct {
	Kind   DumpKind
	Places []int // ascending
	// Keys are 1 to MaxDumpKeys keys of HashLen bytes.
	Keys    []byte
	HashLen int
	// LastUse is when the keys of a DumpRun were used last, at most MaxDumpUse. Those with the lowest number are
	// evicted first.
	LastUse uint64
}

// MaxDumpUse bounds DumpRecord.LastUse, so that a loaded index can count on.
const MaxDumpUse = 1 << 62

// A dump walks along the log. What is stored behind it meanwhile is missing; stores move nothing then.
type dump struct {
	at    slot   // the next one to copy
	epoch uint64 // of the index when the dump began
	removals

	// What the last hold has taken and copied.
	taken    *removal
	records  []DumpRecord
	coverage []*Coverage // of each record that has no Places of its own, else nil
	keys     []byte
}

const (
	// dumpKeys is how many keys are copied under a hold of writing, 20 microseconds, at most one record more. A
	// record, or a run of free slots, takes as long as keysPerRun.
	dumpKeys   = 4096
	keysPerRun = 4
	// dumpBuffer is the bytes of the keys of a hold, of 32 bytes each.
	dumpBuffer = dumpKeys * 32
	// throttleWork is how long a throttled dump works until it sleeps: a lookup may wait so long for the core.
	// maxPause bounds the sleep: emit may have waited for a disk.
	throttleWork = 100 * time.Microsecond
	maxPause     = 100 * time.Millisecond
)

// Dump calls emit with the records of what the index holds. A record is valid during the call. Lookups and
// changes go on meanwhile. What is stored after Dump has begun may be missing, or come twice. If Dump returns
// nil, an index that has loaded the records holds no key at a place where Evict, ResetPlaces or Reset removed it
// before Dump's last hold of the lock. It may hold keys that were evicted to make room. A reset of places that is
// under way then counts as done.
//
// It fails with ErrDumping, ErrDumpBehind, the error of emit or that of ctx. It takes some 2 MiB that do not
// count for MaxBytes, and up to 16 MiB for what is removed meanwhile.
func (x *Index) Dump(ctx context.Context, o DumpOptions, emit func(*DumpRecord) error) error {
	for range maxTouches / touchBatch {
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
		if done, err = x.dumpSome(d, dumpKeys); err != nil {
			return err
		}
		if err := d.emit(emit); err != nil {
			return err
		}
		if worked := time.Since(begun); !o.Throttle || worked < throttleWork {
			runtime.Gosched() // a store may wait for the lock
		} else if !done {
			time.Sleep(min(worked, maxPause))
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

// beginDump begins a dump at the beginning of the log.
func (x *Index) beginDump() (*dump, error) {
	d := &dump{keys: make([]byte, dumpBuffer)}
	clear(d.keys) // the system gives the memory now, not under the lock
	d.keys = d.keys[:0]
	x.writing.Lock()
	defer x.writing.Unlock()
	if x.dumping {
		return nil, ErrDumping
	}
	d.epoch = x.epoch.Load()
	x.dumping, x.dump = true, d
	return d, nil
}

// endDump lets the next dump begin.
func (x *Index) endDump() {
	x.writing.Lock()
	x.dumping, x.dump = false, nil
	x.writing.Unlock()
}

// dumpSome is one hold of writing: it takes what was removed since the last one, and copies about keys of the
// next ones. At the end of the log, or after a reset, it ends the dump. A reset of places that is under way then
// counts as done, as what it has removed so far may have been copied before.
func (x *Index) dumpSome(d *dump, keys int) (done bool, _ error) {
	x.writing.Lock()
	defer x.writing.Unlock()
	if d.overflow {
		return false, ErrDumpBehind
	}
	d.taken, d.removals = d.first, removals{}
	for keys > 0 {
		if int(d.at>>segmentBits) >= len(x.segments) || x.epoch.Load() != d.epoch {
			for _, r := range x.resetting {
				d.add(DumpRecord{Kind: DumpResetPlaces, Places: setOf(r.places)}, nil)
			}
			x.dump = nil
			return true, nil
		}
		keys -= keysPerRun + x.dumpRun(d)
	}
	return false, nil
}

// dumpRun copies the next entries of a segment that have one class and were used at one time, and returns their
// number, or passes free slots.
func (x *Index) dumpRun(d *dump) (n int) {
	seg, i := x.at(d.at)
	if !seg.used.has(i) {
		d.at += slot(seg.used.firstPresent(i) - i)
		return 0
	}
	n = seg.classRun(i, min(segmentSlots-i, MaxDumpKeys))
	time := seg.lastUse[i/rowSlots]
	for row := i/rowSlots + 1; row*rowSlots < i+n; row++ {
		if seg.lastUse[row] != time {
			n = row*rowSlots - i
		}
	}
	d.add(DumpRecord{Kind: DumpRun, HashLen: x.hashLen, Keys: d.copy(seg.records(i, n)), LastUse: min(time, MaxDumpUse)}, x.coverage[seg.classOf(i)])
	d.at += slot(n)
	return n
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
