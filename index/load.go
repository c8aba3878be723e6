package index

import (
	"errors"
	"fmt"
)

// Loader loads a dump into an index. It belongs to one goroutine.
type Loader struct {
	index *Index
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
		return nil
	}
	return fmt.Errorf("%w: kind %d", ErrDumpRecord, r.Kind)
}

// hold makes one change under a hold of writing. The change is not counted.
func (l *Loader) hold(change func(x *Index)) {
	x := l.index
	x.writing.Lock()
	defer x.writing.Unlock()
	stored, evicted := x.stored.Load(), x.evicted.Load()
	change(x)
	x.stored.Store(stored)
	x.evicted.Store(evicted)
}

// store stores the keys of a DumpRun, and evicts for them only what was used earlier.
func (l *Loader) store(r *DumpRecord) error {
	if r.LastUse > MaxDumpUse {
		return fmt.Errorf("%w: last used at %d, at most %d can be", ErrDumpRecord, r.LastUse, uint64(MaxDumpUse))
	}
	w := Writer{last: noSlot, use: max(r.LastUse, 1)}
	var next batch
	for keys := r.Keys; len(keys) > 0 && !w.full; {
		var n int
		var err error
		l.hold(func(x *Index) {
			x.clock = max(x.clock, w.use)
			n, err = x.storeBatch(&w, &next, r.Places, keys, r.HashLen)
		})
		if errors.Is(err, ErrClasses) {
			break
		} else if err != nil {
			return err
		}
		keys = keys[n*r.HashLen:]
	}
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
