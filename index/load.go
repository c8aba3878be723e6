package index

import (
	"errors"
	"fmt"
)

// Load loads the next record of a dump, which is only borrowed. The index is empty before the first one, and nobody
// else changes it until the last one. Keys for which the bounds leave no room, or no class can be had, are passed
// over or evicted, those used least recently first. What is loaded does not count as stored or evicted in Stats.
// Load fails as Store, Evict and ResetPlaces do, or with ErrDumpRecord. The index then holds a part of the dump: the
// caller calls Reset. Records are not checked for truth: wrong ones put wrong keys into the index, nothing worse.
func (x *Index) Load(r *DumpRecord) error {
	switch r.Kind {
	case DumpRun, DumpEvict:
		if err := x.check(r.Places, r.Keys, r.HashLen); err != nil {
			return err
		}
		if n := len(r.Keys) / r.HashLen; n == 0 || n > MaxDumpKeys {
			return fmt.Errorf("%w: %d keys, give 1 to %d", ErrDumpRecord, n, MaxDumpKeys)
		}
		if r.Kind == DumpEvict {
			return x.loadEvict(r)
		}
		return x.loadRun(r)
	case DumpResetPlaces:
		return x.loadResetPlaces(r.Places)
	case DumpReset:
		x.Reset()
		return nil
	}
	return fmt.Errorf("%w: kind %d", ErrDumpRecord, r.Kind)
}

// loadStep makes one change under a hold of writing. The change is not counted.
func (x *Index) loadStep(change func()) {
	x.writing.Lock()
	defer x.writing.Unlock()
	stored, evicted := x.stored.Load(), x.evicted.Load()
	change()
	x.stored.Store(stored)
	x.evicted.Store(evicted)
}

// loadRun stores the keys of a DumpRun, and evicts for them only what was used earlier.
func (x *Index) loadRun(r *DumpRecord) error {
	if r.LastUse > MaxDumpUse {
		return fmt.Errorf("%w: last used at %d, at most %d can be", ErrDumpRecord, r.LastUse, uint64(MaxDumpUse))
	}
	w := Writer{last: noSlot, use: max(r.LastUse, 1), loads: true}
	var next batch
	for keys := r.Keys; len(keys) > 0 && !w.full; {
		var n int
		var err error
		x.loadStep(func() {
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

func (x *Index) loadEvict(r *DumpRecord) error {
	for i := range r.Places {
		for keys := r.Keys; len(keys) > 0; {
			var n int
			var err error
			x.loadStep(func() { _, n, err = x.evictBatch(r.Places[i], keys, r.HashLen) })
			if err != nil {
				return err
			}
			keys = keys[n*r.HashLen:]
		}
	}
	return nil
}

func (x *Index) loadResetPlaces(places []int) error {
	r, err := x.beginReset(places)
	if err != nil {
		return err
	}
	for done := false; !done; {
		x.loadStep(func() { done = x.resetSome(r) })
	}
	return nil
}
