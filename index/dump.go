package index

import (
	"context"
	"errors"
	"math/bits"
	"slices"
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
	// ErrDumpBehind ends a dump that more is evicted from meanwhile than it can keep up with.
	ErrDumpBehind = errors.New("index: more was evicted during the dump than it can keep up with")
	// ErrDumpRecord is wrapped by what is wrong with a record that is loaded.
	ErrDumpRecord = errors.New("index: bad record of a dump")
)

// DumpOptions says how an index is dumped.
type DumpOptions struct {
	// Gentle makes the dump sleep as long as it works, emit included.
	Gentle bool
}

// DumpRecord is one step of a dump. Loaded in their order into an empty index with the same places, the
// records make it hold what the dumped one held. A dump begins with what was used least recently.
type DumpRecord struct {
	Kind   DumpKind
	Places []int // ascending
	// Keys are 1 to MaxDumpKeys keys, of a DumpRun consecutive ones of a chain if Numbered.
	Keys    []byte
	HashLen int
	// Of a DumpRun: Number is that of the first key in its chain, if Numbered, and Before the key in
	// front of it, empty if that is not known. Hot says that a lookup has found the keys, or
	// a later store had them, since they were stored. Time is that of their last use, in keys stored
	// until then, modulo 2^32; it never decreases, but for a DumpReset. SameUse says that they are
	// evicted before those of the run in front, which has the same Time and Hot.
	Numbered, Hot, SameUse bool
	Number                 uint32
	Before                 []byte
	Time                   uint32
	// Of a DumpBonus: 0 to 16.
	Bonus float64
}

// Dump calls emit with the records of what the index holds. Lookups and changes go on meanwhile: what is
// stored after Dump has begun may be missing; what is evicted by Evict, ResetPlaces or Reset before Dump
// returns is not held by an index that has loaded the dump. The record is valid during the call. Dump
// returns the error of emit, or that of ctx.
func (x *Index) Dump(ctx context.Context, o DumpOptions, emit func(*DumpRecord) error) error {
	for at := slot(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		x.writing.Lock()
		var r DumpRecord
		for x.valid(at) != noSlot && r.Kind == 0 {
			seg, i := x.at(at)
			id := seg.class[i]
			n := 1
			if id != noClass {
				for n < groupSlots && i+n < segmentSlots && seg.class[i+n] == id {
					n++
				}
				r = DumpRecord{Kind: DumpRun, Places: placesOf(x.coverage[id]), HashLen: x.hashLen, Keys: slices.Clone(seg.records(i, n))}
			}
			at += slot(n)
		}
		x.writing.Unlock()
		if r.Kind == 0 {
			return nil
		}
		if err := emit(&r); err != nil {
			return err
		}
	}
}

// placesOf returns the places of a coverage, ascending.
func placesOf(c *Coverage) []int {
	places := make([]int, 0, c.held)
	for w, held := range c.places {
		for ; held != 0; held &= held - 1 {
			places = append(places, w*64+bits.TrailingZeros64(held))
		}
	}
	return places
}

// Loader loads a dump into an index. It belongs to one goroutine.
type Loader struct {
	index *Index
}

// NewLoader returns a Loader for an index that is empty and that nobody else changes until the load ends.
func (x *Index) NewLoader() *Loader { return &Loader{index: x} }

// Load loads the next record, which is only borrowed. It fails as Store, Evict and ResetPlaces do. The index
// then holds a part of the dump: the caller calls Reset.
func (l *Loader) Load(r *DumpRecord) error {
	switch r.Kind {
	case DumpRun:
		var w Writer
		return l.index.Store(&w, r.Places, r.Keys, r.HashLen)
	case DumpEvict:
		for _, place := range r.Places {
			if _, err := l.index.Evict(place, r.Keys, r.HashLen); err != nil {
				return err
			}
		}
		return nil
	case DumpResetPlaces:
		return l.index.ResetPlaces(r.Places)
	case DumpReset:
		l.index.Reset()
		return nil
	case DumpBonus:
		return nil
	default:
		return ErrDumpRecord
	}
}
