package index

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Errors of the index.
var (
	// ErrConfig wraps what is wrong with a Config.
	ErrConfig = errors.New("index: bad configuration")
	// ErrHashLen says that a hash is not 1 to 64 bytes long.
	ErrHashLen = errors.New("index: hash length outside 1 to 64 bytes")
	// ErrCutKey says that keys are not a whole number of hashes.
	ErrCutKey = errors.New("index: keys are not a whole number of hashes")
	// ErrPlace says that a place is outside the configured pool.
	ErrPlace = errors.New("index: place outside the pool")
	// ErrClasses refuses a store that would need one more combination of places
	// than can be told apart.
	ErrClasses = errors.New("index: too many different combinations of groups and ranks")
)

const (
	maxHashLen = 64
	// DefaultMaxBytes bounds an index whose Config gives no number: 1 GiB.
	DefaultMaxBytes = 1 << 30
	// MinMaxBytes is the smallest byte bound that is accepted: one segment of the
	// longest hashes, a page of the table and the queues, with room to spare.
	MinMaxBytes = 2 << 20
	// fixedBytes is set aside for what does not grow with the entries: the queue
	// of touches and the classes of an ordinary pool.
	fixedBytes = 1 << 20
	// MaxGroups is how many groups fit the bits of Coverage.Complete.
	MaxGroups = 64
)

// Config bounds an index and describes the places of its pool.
type Config struct {
	// MaxBytes bounds the memory of the index in bytes, all that it allocates
	// included; 0 means DefaultMaxBytes.
	MaxBytes int64
	// MaxEntries bounds the number of entries; 0 means no bound of its own.
	MaxEntries int64
	// Places is the number of places (a group on one rank); at least 1.
	Places int
	// Groups lists for each group the places that must hold a key for a lookup to
	// find it. At most MaxGroups.
	Groups [][]int
}

// Index is the pool index in memory. All methods are safe for concurrent use; a
// Cursor or Writer belongs to one goroutine at a time.
type Index struct {
	maxBytes, maxEntries int64
	places               int
	groups               [][]int
	seed                 maphash.Seed
	hash                 func(maphash.Seed, []byte) uint64 // maphash.Bytes, but for tests

	mu           sync.RWMutex // guards all below; held for bounded batches only
	segments     []*segment   // by segment number; nil where one was released
	vacant       []int        // numbers of released segments
	free         [maxHashLen + 1]slot
	table        *table
	classes      *classes
	newest       slot // ends of the recency list
	oldest       slot
	entries      int64
	slots        int64  // of all segments
	segmentTotal int64  // bytes of all segments
	epoch        uint64 // counts resets
	removals     uint64 // counts entries that went or lost a place

	touchMu    sync.Mutex // taken after mu where both are held
	touches    []stretch  // found by lookups, not yet in the recency list
	touched    int        // of those, already applied
	toTouch    int        // entries in those that are not
	touchEpoch uint64

	stored, evicted, refused atomic.Int64
}

// New returns an empty index.
func New(cfg Config) (*Index, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	switch {
	case cfg.MaxBytes < MinMaxBytes:
		return nil, fmt.Errorf("%w: max_bytes is %d, the least is %d (2MiB)", ErrConfig, cfg.MaxBytes, MinMaxBytes)
	case cfg.MaxEntries < 0:
		return nil, fmt.Errorf("%w: max_entries is %d, give 0 for no bound or a positive number", ErrConfig, cfg.MaxEntries)
	case cfg.Places < 1:
		return nil, fmt.Errorf("%w: a pool has at least one place, not %d", ErrConfig, cfg.Places)
	case len(cfg.Groups) > MaxGroups:
		return nil, fmt.Errorf("%w: %d groups, at most %d can be told apart", ErrConfig, len(cfg.Groups), MaxGroups)
	}
	for g, required := range cfg.Groups {
		for _, p := range required {
			if p < 0 || p >= cfg.Places {
				return nil, fmt.Errorf("%w: group %d requires place %d of %d", ErrConfig, g, p, cfg.Places)
			}
		}
	}
	x := &Index{
		maxBytes: cfg.MaxBytes, maxEntries: cfg.MaxEntries, places: cfg.Places, groups: cfg.Groups,
		seed: maphash.MakeSeed(), hash: maphash.Bytes,
	}
	x.clear()
	return x, nil
}

// clear makes the index empty; under the write lock, or before it is shared.
func (x *Index) clear() {
	x.segments, x.vacant = nil, nil
	for i := range x.free {
		x.free[i] = noSlot
	}
	x.table = newTable()
	x.classes = newClasses(x.places, x.groups)
	x.newest, x.oldest = noSlot, noSlot
	x.entries, x.slots, x.segmentTotal = 0, 0, 0
}

// Reset forgets all entries. It is O(1): the memory goes back to the runtime in
// the background. Lookups under way learn of it from their next Probe or End.
func (x *Index) Reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clear()
	x.epoch++
	x.removals++
	x.touchMu.Lock()
	x.touches, x.touched, x.toTouch, x.touchEpoch = x.touches[:0], 0, 0, x.epoch
	x.touchMu.Unlock()
}

// Stats are the counters of an index. Sums count since it was made.
type Stats struct {
	Entries    int64 // entries now
	MaxEntries int64 // their bound, 0 for none
	Bytes      int64 // memory in bytes now
	MaxBytes   int64 // its bound
	Stored     int64 // keys that a store added to a place
	Evicted    int64 // entries removed, to make room or on request
	Refused    int64 // stores refused for want of classes
}

// Stats returns the counters.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return Stats{
		Entries: x.entries, MaxEntries: x.maxEntries,
		Bytes: x.bytes(), MaxBytes: x.maxBytes,
		Stored: x.stored.Load(), Evicted: x.evicted.Load(), Refused: x.refused.Load(),
	}
}

// bytes is the memory of the index, under the lock.
func (x *Index) bytes() int64 {
	x.touchMu.Lock()
	queue := int64(cap(x.touches)) * 8
	x.touchMu.Unlock()
	return x.segmentTotal + x.table.bytes() + x.classes.bytes() + queue
}

// tag is the part of a key's hash that the table works with.
func (x *Index) tag(key []byte) uint32 { return uint32(x.hash(x.seed, key) >> 32) }

// find returns the slot of a key.
func (x *Index) find(tag uint32, key []byte) slot {
	for p := x.table.page(tag); p != nil; p = p.overflow {
		for i := tag & pageMask; p.cells[i] != 0; i = (i + 1) & pageMask {
			c := p.cells[i]
			if uint32(c>>32) != tag {
				continue
			}
			s := slot(uint32(c) - 1)
			seg, j := x.at(s)
			if string(seg.key(j)) == string(key) { // also compares lengths
				return s
			}
		}
	}
	return noSlot
}
