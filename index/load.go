package index

import (
	"errors"
	"fmt"
	"math"
)

// Loader loads a dump into an index. It belongs to one goroutine.
type Loader struct {
	index *Index
	last  Writer // of the last run
	time  uint32 // of its last use
	age   uint64 // of the first run at that time
	runs  bool   // there was a run since the beginning or the last reset
}

// NewLoader returns a Loader for an index that is empty and that nobody else changes until the load ends.
func (x *Index) NewLoader() *Loader { return &Loader{index: x} }

// Load loads the next record, which is only borrowed. Keys for which the bounds leave no room, or no class
// can be had, are passed over or evicted, those used least recently first. What is loaded does not count
// as stored or evicted in Stats. Load fails as Store, Evict and ResetPlaces do, or with ErrDumpRecord. The
// index then holds a part of the dump: the caller calls Reset. Records may be of any origin: the worst that
// they do is to make the index hold what they say.
func (l *Loader) Load(r *DumpRecord) error {
	switch r.Kind {
	case DumpRun, DumpEvict:
		if err := l.index.check(r.Places, r.Keys, r.HashLen); err != nil {
			return err
		}
		if n := len(r.Keys) / r.HashLen; n == 0 || n > MaxDumpKeys {
			return fmt.Errorf("%w: %d keys, give 1 to %d", ErrDumpRecord, n, MaxDumpKeys)
		}
		if r.Kind == DumpEvict {
			return l.evict(r)
		}
		return l.store(r)
	case DumpResetPlaces:
		return l.resetPlaces(r.Places)
	case DumpReset:
		l.index.Reset()
		l.last, l.runs = Writer{}, false
		return nil
	case DumpBonus:
		if !(r.Bonus >= 0 && r.Bonus <= mostBonus) { // also if it is no number
			return fmt.Errorf("%w: a bonus of %v, give 0 to %d", ErrDumpRecord, r.Bonus, mostBonus)
		}
		l.hold(func(x *Index) { x.policy.bonus = r.Bonus })
		return nil
	}
	return fmt.Errorf("%w: kind %d", ErrDumpRecord, r.Kind)
}

// hold makes one change under a hold of writing. The change is not counted, and the policy learns nothing
// from it.
func (l *Loader) hold(change func(x *Index)) {
	x := l.index
	x.writing.Lock()
	defer x.writing.Unlock()
	stored, evicted := x.stored.Load(), x.evicted.Load()
	x.policy.frozen = true
	change(x)
	x.policy.frozen = false
	x.stored.Store(stored)
	x.evicted.Store(evicted)
}

// store stores the keys of a DumpRun as the newest of their list, or behind those of the run in front.
func (l *Loader) store(r *DumpRecord) error {
	if len(r.Before) != 0 && len(r.Before) != r.HashLen {
		return fmt.Errorf("%w: a key in front of %d bytes, the others have %d", ErrDumpRecord, len(r.Before), r.HashLen)
	}
	w := Writer{last: noSlot, hot: r.Hot}
	if r.SameUse && l.runs && l.last.hot == r.Hot {
		w.store, w.after = l.last.store, l.last.after
	} else if !l.runs {
		l.time, l.age = r.Time, 0
	} else if age := l.age + uint64(r.Time-l.time); age <= math.MaxUint32 { // otherwise it is earlier, or out of order
		l.time, l.age = r.Time, age
	}
	if r.Numbered {
		w.Number(r.Number)
		if r.Number > 0 {
			w.hashLen = copy(w.lastKey[:], r.Before)
		}
	}
	var next batch
	for keys := r.Keys; len(keys) > 0 && !w.full; {
		var n int
		var err error
		l.hold(func(x *Index) {
			x.policy.clock = l.time
			n, err = x.storeBatch(&w, &next, r.Places, keys, r.HashLen)
		})
		if errors.Is(err, ErrClasses) {
			break
		} else if err != nil {
			return err
		}
		keys = keys[n*r.HashLen:]
	}
	l.last, l.runs = w, true
	return nil
}

func (l *Loader) evict(r *DumpRecord) error {
	for i := range r.Places {
		for keys := r.Keys; len(keys) > 0; {
			var n int
			var err error
			l.hold(func(x *Index) { _, n, err = x.evictBatch(r.Places[i], keys, r.HashLen) })
			if err != nil {
				return err
			}
			keys = keys[n*r.HashLen:]
		}
	}
	return nil
}

func (l *Loader) resetPlaces(places []int) error {
	var r PlacesReset
	if err := l.index.BeginResetPlaces(&r, places); err != nil {
		return err
	}
	for r.index != nil {
		l.hold(func(x *Index) { x.resetSome(&r) })
	}
	return nil
}
