package index

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/simd"
)

// Errors of the index.
var (
	// ErrHashLen says that a hash is not 1 to 64 bytes long.
	ErrHashLen = errors.New("hash length outside 1 to 64 bytes")
	// ErrCutKey says that keys are not a whole number of hashes.
	ErrCutKey = errors.New("keys are not a whole number of hashes")
	// ErrPlace says that a place is outside the configured pool, or that places do not ascend.
	ErrPlace = errors.New("place outside the pool")
	// ErrClasses refuses a store that would need one more combination of places
	// than can be told apart, or than a part of the memory has room for.
	ErrClasses = errors.New("too many different combinations of groups and ranks")
	// ErrOtherHashLen is wrapped by the refusal of hashes that are not as long as those
	// of the index. Clients read its text, and that of ErrClasses.
	ErrOtherHashLen = errors.New("hashes of another length")
)

const (
	maxHashLen = 64
	// DefaultMaxBytes bounds an index whose Config gives no number: 1 GiB.
	DefaultMaxBytes = 1 << 30
	// MinMaxBytes is the smallest byte bound that is accepted: one segment of the
	// longest hashes, a page of the table and the queues, with room to spare.
	MinMaxBytes = 2 << 20
	// fixedBytes is kept for what does not grow with the entries: the queues of touches.
	fixedBytes = 512 << 10
	// MaxGroups is how many groups fit the bits of Coverage.Complete.
	MaxGroups = 64
	// MaxRequired is how many places of a group Coverage.Counts can count.
	MaxRequired = 1<<16 - 1
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
	// find it. At most MaxGroups groups, of at most MaxRequired places each.
	Groups [][]int
	// HashLen is the length of all hashes in bytes. 0: that of the first store after
	// New or Reset.
	HashLen int
}

// Index is the pool index in memory. Lookups compare 64 consecutive keys at a time by a digest of 128 bits. Two that
// differ have equal digests with probability 2^-128, whoever chose them (see simd.DigestSecret). Without an instruction
// for carry-less multiplication all keys are compared byte by byte. All methods are safe for concurrent use; a
// Cursor or Writer belongs to one goroutine at a time.
type Index struct {
	maxBytes, maxEntries int64
	places               int
	layout               *layout
	setHashLen           int // as configured
	hasher               hasher
	badHash              func(key []byte) uint64 // in its place, for tests; nil otherwise
	digests              bool                    // lookups compare digests of groups
	secret               *simd.DigestSecret      // of the digests

	// mu guards what readers see: the segments' list, keys of entries and classes,
	// the table's directory and pages, the coverages, hashLen. Changed under writing
	// and mu both, so that a writer reads it without mu.
	mu       gate
	segments []segment // by segment number
	table    *table
	coverage []*Coverage   // by class; nil for noClass and for free numbers
	hashLen  int           // of all keys; 0 if that is not decided
	epoch    atomic.Uint64 // counts resets
	_        cacheLine

	// writing is held by whoever changes the index, for one batch. What only
	// writers know is guarded by it alone.
	writing sync.Mutex
	classes *classes
	entries int64
	clock   uint64 // counts uses, see last_use.go; 0 is before the first
	storeAt uint64 // the time of the newest store
	useTimes
	writers
	// What a reset has left to be released.
	discarded    []*memory
	discardBytes int64
	resetting    int       // resets of places under way
	touching     []stretch // taken from the queues
	touched      int       // of those, already applied
	emptied      int       // the stripe of mu whose queue was taken last

	stored, evicted, refused atomic.Int64
}

// writers is what only writers know of the entries. A reset makes it anew.
type writers struct {
	used         bool      // something was stored since the last reset
	slabs        []*memory // of the log
	freshSlab    freshSlab // of the last of them
	logBytes     int64     // of all slabs, and what belongs to their segments
	slots        int64     // of all segments
	free         int64     // slots that are
	freeSegments freeSegments
	open         opening
	byUse        useHeap
	lookAt       int    // the place in byUse that oldestRow looked at last in turn
	allowance    int64  // entries that stores may still evict to make the slack
	evicting     bool   // something was evicted to make room
	evictedUse   uint64 // the time of use of the row from which that was last
	splits       int    // pages that the batch has split
}

// New returns an empty index.
func New(cfg Config) (*Index, error) {
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	switch {
	case cfg.MaxBytes < MinMaxBytes:
		return nil, fmt.Errorf("%w: %w", fielderror.ErrConfig, fielderror.New([]string{"max_bytes"}, "max_bytes is %d, the least is %d (2MiB)", cfg.MaxBytes, MinMaxBytes))
	case cfg.MaxEntries < 0:
		return nil, fmt.Errorf("%w: %w", fielderror.ErrConfig, fielderror.New([]string{"max_entries"}, "max_entries is %d, give 0 for no bound or a positive number", cfg.MaxEntries))
	case cfg.Places < 1:
		return nil, fmt.Errorf("%w: a pool has at least one place, not %d", fielderror.ErrConfig, cfg.Places)
	case cfg.HashLen < 0 || cfg.HashLen > maxHashLen:
		return nil, fmt.Errorf("%w: hashes of %d bytes, give 1 to %d, or 0 for the length of the first", fielderror.ErrConfig, cfg.HashLen, maxHashLen)
	case len(cfg.Groups) > MaxGroups:
		return nil, fmt.Errorf("%w: %d groups, at most %d can be told apart", fielderror.ErrConfig, len(cfg.Groups), MaxGroups)
	}
	for g, required := range cfg.Groups {
		if len(required) > MaxRequired {
			return nil, fmt.Errorf("%w: group %d requires %d places, at most %d can be counted", fielderror.ErrConfig, g, len(required), MaxRequired)
		}
		for _, p := range required {
			if p < 0 || p >= cfg.Places {
				return nil, fmt.Errorf("%w: group %d requires place %d of %d", fielderror.ErrConfig, g, p, cfg.Places)
			}
		}
	}
	x := &Index{
		maxBytes: cfg.MaxBytes, maxEntries: cfg.MaxEntries, places: cfg.Places, setHashLen: cfg.HashLen,
		hasher: newHasher(), digests: simd.FastDigest(), secret: simd.NewDigestSecret(),
	}
	x.mu.init()
	x.layout = newLayout(cfg.Places, cfg.Groups, [2]uint64{x.hasher.words[0], x.hasher.finish})
	x.clear()
	return x, nil
}

// clear makes the index empty, for writers. Readers wait for the exchange only; what
// was there is left to the collector and to releaseStep.
func (x *Index) clear() {
	slabs := x.slabs
	if x.table != nil {
		slabs = append(slabs, x.table.slabs...)
	}
	table := newTable()
	classes := newClasses(x.layout, classBudget(x.maxBytes, x.places, x.layout))
	x.mu.Lock()
	x.segments, x.table, x.coverage, x.hashLen = nil, table, classes.coverage, x.setHashLen
	x.classes, x.entries = classes, 0
	x.epoch.Add(1)
	x.mu.Unlock()
	x.writers = writers{}
	x.touching, x.touched = x.touching[:0], 0
	for _, m := range slabs {
		x.discard(m)
	}
}

// hash hashes a key.
func (x *Index) hash(key []byte) uint64 {
	if x.badHash != nil {
		return x.badHash(key)
	}
	return x.hasher.sum(key)
}

// Reset forgets all entries. The time it takes depends on the number of slabs, some
// hundred of a full index, not on that of the entries; the memory goes back step by step
// with later stores. Lookups under way learn of it from their next Probe or End. If
// nothing was stored since the last Reset it does nothing: lookups since then have found
// nothing that they would have to forget.
func (x *Index) Reset() {
	x.writing.Lock()
	defer x.writing.Unlock()
	if !x.used {
		return
	}
	x.clear()
	for i := range x.mu.stripes {
		r := &x.mu.stripes[i]
		r.touchMu.Lock()
		r.touches = r.touches[:0]
		r.touchMu.Unlock()
	}
}

// Limit sets the byte bound, or the least one that the entries there are need if that is more, and returns it.
func (x *Index) Limit(maxBytes int64) int64 {
	x.writing.Lock()
	defer x.writing.Unlock()
	fresh := int64(len(x.freshSlab.classes) / segmentSlots * segmentSlots)
	table := max(x.table.bytes(), worstTable(x.slots+fresh))
	x.maxBytes = max(maxBytes, x.logBytes+table+x.classes.budget+fixedBytes, MinMaxBytes)
	return x.maxBytes
}

// useHashLen refuses hashes of another length than the index holds. The first store
// decides which that is, unless it is configured.
func (x *Index) useHashLen(hashLen int) error {
	if x.hashLen == 0 {
		x.mu.Lock()
		x.hashLen = hashLen
		x.mu.Unlock()
	}
	if hashLen != x.hashLen {
		return x.otherHashLen(hashLen)
	}
	return nil
}

func (x *Index) otherHashLen(hashLen int) error {
	return requesterror.New(ErrOtherHashLen, "hash_len is %d, but the pool holds hashes of %d bytes: all its clients need one hash function", hashLen, x.hashLen)
}

// tooManyClasses is an ErrClasses of a store.
func (x *Index) tooManyClasses() error {
	return requesterror.New(ErrClasses, "the keys that the pool holds are on %d different sets of ranks, and another one has no room: raise max_bytes of the index",
		x.classes.live)
}

// Stats are the counters of an index. Sums count since it was made.
type Stats struct {
	Entries    int64 // entries now
	MaxEntries int64 // their bound, 0 for none
	Bytes      int64 // memory in bytes now
	MaxBytes   int64 // its bound
	Stored     int64 // keys that a store added to a place, once for each place
	Evicted    int64 // entries removed, to make room or on request
	Refused    int64 // stores and evicts refused: ErrClasses, ErrOtherHashLen
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
	queue := int64(cap(x.touching))
	for i := range x.mu.stripes {
		r := &x.mu.stripes[i]
		r.touchMu.Lock()
		queue += int64(cap(r.touches))
		r.touchMu.Unlock()
	}
	return x.logBytes + x.table.bytes() + x.classes.bytes() + x.discardBytes + queue*stretchBytes
}
