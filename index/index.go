package index

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/internal/fielderror"
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
	hasher               hasher
	badHash              func(key []byte) uint64 // in its place, for tests; nil otherwise

	// writing is held by whoever changes the index, for one batch. What only
	// writers know is guarded by it alone.
	writing sync.Mutex
	// mu guards what readers see: the segments' list, keys of entries and classes,
	// the table's directory, pages and overflow, the classes, links, entries, logBytes.
	// Changed under writing and mu both, so that a writer reads it without mu.
	mu       gate
	segments []segment // by segment number
	table    *table
	classes  *classes
	entries  int64
	logBytes int64         // of all slabs
	epoch    atomic.Uint64 // counts resets
	removals atomic.Uint64 // counts batches in which entries went or lost a place

	// Of the writers.
	vacant     []int // numbers of released segments
	slots      int64 // of all segments
	free       [maxHashLen + 1]int64
	open       [maxHashLen + 1]opening
	spans      []*[spanChunk]span
	unusedSpan spanID

	unusedSpans int
	refBytes    int64
	headBytes   int64 // of all segments' links
	cold, hot   spanList
	policy      policy
	stores      uint32            // numbers stores
	evicting    bool              // something was evicted since the last reset
	touching    []stretch         // taken from the queue
	touched     int               // of those, already applied
	moved       int               // spans that use has moved, see applyTouches
	hashes      [batchKeys]uint64 // see remove
	sum         uint32            // see remove
	// What a reset has left to be released.
	discarded    []*memory
	discardBytes int64

	touchMu sync.Mutex // taken after the others
	touches []stretch  // found by lookups, not yet applied

	stored, evicted, refused atomic.Int64
}

// New returns an empty index.
func New(cfg Config) (*Index, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	switch {
	case cfg.MaxBytes < MinMaxBytes:
		return nil, fmt.Errorf("%w: %w", ErrConfig, fielderror.New([]string{"max_bytes"}, "max_bytes is %d, the least is %d (2MiB)", cfg.MaxBytes, MinMaxBytes))
	case cfg.MaxEntries < 0:
		return nil, fmt.Errorf("%w: %w", ErrConfig, fielderror.New([]string{"max_entries"}, "max_entries is %d, give 0 for no bound or a positive number", cfg.MaxEntries))
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
		hasher: newHasher(),
	}
	x.clear()
	return x, nil
}

// clear makes the index empty; under both locks, or before it is shared.
func (x *Index) clear() {
	for id, seg := range x.segments {
		if seg.hashLen > 0 && seg.slab.segments[0] == id {
			x.discard(seg.slab.records)
		}
	}
	if x.table != nil {
		for _, m := range x.table.slabs {
			x.discard(m)
		}
	}
	x.segments, x.vacant = nil, nil
	x.table = newTable()
	x.classes = newClasses(x.places, x.groups)
	x.entries, x.logBytes, x.slots = 0, 0, 0
	x.free, x.open = [maxHashLen + 1]int64{}, [maxHashLen + 1]opening{}
	x.spans, x.unusedSpan, x.unusedSpans, x.refBytes, x.headBytes = nil, noSpan, 0, 0, 0
	x.cold, x.hot = spanList{}, spanList{}
	x.policy = policy{}
	x.evicting = false
	x.touching, x.touched = x.touching[:0], 0
}

// hash hashes a key.
func (x *Index) hash(key []byte) uint64 {
	if x.badHash != nil {
		return x.badHash(key)
	}
	return x.hasher.sum(key)
}

// Reset forgets all entries. It is O(1): the memory goes back to the runtime in
// the background. Lookups under way learn of it from their next Probe or End.
func (x *Index) Reset() {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.mu.Lock()
	x.clear()
	x.epoch.Add(1)
	x.removals.Add(1)
	x.mu.Unlock()
	x.touchMu.Lock()
	x.touches = x.touches[:0]
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
	x.writing.Lock()
	defer x.writing.Unlock()
	return Stats{
		Entries: x.entries, MaxEntries: x.maxEntries,
		Bytes: x.bytes(), MaxBytes: x.maxBytes,
		Stored: x.stored.Load(), Evicted: x.evicted.Load(), Refused: x.refused.Load(),
	}
}

// bytes is the memory of the index, for writers.
func (x *Index) bytes() int64 {
	x.touchMu.Lock()
	queue := int64(cap(x.touches)) * stretchBytes
	x.touchMu.Unlock()
	queue += int64(cap(x.touching)) * stretchBytes
	return x.logBytes + x.table.bytes() + x.classes.bytes() + x.spanBytes() + x.headBytes + x.discardBytes + queue +
		int64(len(x.policy.ghosts))*ghostBytes
}
