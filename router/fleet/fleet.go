package fleet

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitline/hitline/coordinator"
)

// Fleet records which blocks the holders of one model have: engines whose block hashes can be compared. Safe for
// concurrent use.
type Fleet struct {
	cfg   Config
	start time.Time

	room    sync.RWMutex // is taken before mu, by what frees memory at the bound, and to read by what copies a snapshot
	mu      sync.RWMutex
	core    *core
	holders []*Holder // by Engine and Rank; a Holder's index is where it is
}

// New returns a fleet without holders. It fails with fielderror.ErrConfig.
func New(cfg Config) (*Fleet, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &Fleet{cfg: cfg, start: cfg.now()}
	f.core = newCore(&f.cfg)
	return f, nil
}

// Add adds a holder, which is stale until SetStale(false). It fails with ErrExists or ErrTooMany.
func (f *Fleet) Add(id ID) (*Holder, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, found := f.search(id); found {
		return nil, fmt.Errorf("%w: rank %d of engine %q", ErrExists, id.Rank, id.Engine)
	}
	if len(f.holders) >= f.cfg.MaxHolders {
		return nil, fmt.Errorf("%w: there are %d", ErrTooMany, len(f.holders))
	}
	h := &Holder{fleet: f, id: id, stale: true}
	h.number = f.core.numbers.alloc(h, f.core.groups.none())
	f.list(h)
	return h, nil
}

// search returns where a holder is, or would be.
func (f *Fleet) search(id ID) (int, bool) {
	return slices.BinarySearchFunc(f.holders, id, func(h *Holder, id ID) int { return compareIDs(h.id, id) })
}

// list adds a holder to the list of holders.
func (f *Fleet) list(h *Holder) {
	at, _ := f.search(h.id)
	f.holders = slices.Insert(f.holders, at, h)
	f.renumber(at)
}

// remove removes a holder and its number.
func (f *Fleet) remove(h *Holder) {
	f.holders = slices.Delete(f.holders, int(h.index), int(h.index)+1)
	f.renumber(int(h.index))
	f.core.numbers.retire(h.number)
	f.core.tiers.release(h.groupTiers)
	if len(f.holders) == 0 {
		f.core = newCore(&f.cfg) // frees all memory at once
	}
}

// renumber sets the indexes of the holders from one on.
func (f *Fleet) renumber(from int) {
	for i := from; i < len(f.holders); i++ {
		h := f.holders[i]
		h.index = uint32(i)
		f.core.numbers.list[h.number].index = h.index
	}
}

func compareIDs(a, b ID) int {
	return cmp.Or(strings.Compare(a.Engine, b.Engine), cmp.Compare(a.Rank, b.Rank))
}

// Get returns a holder, nil if there is none of this name.
func (f *Fleet) Get(id ID) *Holder {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if at, found := f.search(id); found {
		return f.holders[at]
	}
	return nil
}

// HasEngine reports whether there is a holder of an engine.
func (f *Fleet) HasEngine(engine string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	at, _ := f.search(ID{Engine: engine})
	return at < len(f.holders) && f.holders[at].id.Engine == engine
}

// HasPredictions reports whether predicted blocks count for a holder.
func (f *Fleet) HasPredictions() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	oldest := f.oldest()
	return slices.ContainsFunc(f.holders, func(h *Holder) bool { return h.predicted.count(oldest) > 0 })
}

// HolderStatus is the state of one holder.
type HolderStatus struct {
	ID
	Stale  bool `json:"stale"`
	Blocks int  `json:"blocks"` // entries in all groups and tiers, and predicted ones
}

// Holders returns the state of all holders, by Engine and Rank. The caller owns the result.
func (f *Fleet) Holders() []HolderStatus {
	f.mu.RLock()
	defer f.mu.RUnlock()
	oldest := f.oldest()
	list := make([]HolderStatus, len(f.holders))
	for i, h := range f.holders {
		list[i] = HolderStatus{ID: h.id, Stale: h.stale, Blocks: h.count(oldest)}
	}
	return list
}

// Stats says how much a Fleet holds.
type Stats struct {
	Holders  int   `json:"-"`
	Blocks   int64 `json:"blocks"`  // different block hashes: a hash in several groups is one
	Entries  int64 `json:"entries"` // blocks of each holder, group and tier, and predicted ones
	Sets     int   `json:"sets"`    // sets of holders
	Bytes    int64 `json:"bytes"`   // of memory
	MaxBytes int64 `json:"max_bytes"`
}

// Stats returns how much the fleet holds.
func (f *Fleet) Stats() Stats {
	f.mu.RLock()
	defer f.mu.RUnlock()
	c := f.core
	s := Stats{Holders: len(f.holders), Blocks: c.log.records - c.emptyRecords, Sets: c.sets.count, Bytes: c.bytes(), MaxBytes: f.cfg.MaxBytes}
	oldest := f.oldest()
	for _, h := range f.holders {
		s.Entries += int64(h.count(oldest))
	}
	return s
}

// Lookup sets r to what the holders have of a prompt. hashes are those of its whole blocks, of 8 bytes or longer:
// their short form is read. It fails with ErrHashLen. hashes is only borrowed.
func (f *Fleet) Lookup(r *Result, hashes coordinator.Hashes) error {
	if err := r.query.Begin(f, hashes.HashLen()); err != nil {
		return err
	}
	r.query.Add(hashes.Bytes())
	r.query.End(r)
	return nil
}

// shortLen is the length of the short form of a hash in bytes.
const shortLen = 8

// shortAt returns where the short form of a hash begins.
func (c *Config) shortAt(hashLen int) int {
	if c.FirstBytes {
		return 0
	}
	return hashLen - shortLen
}

// key returns the short form of the first hash of a blob, which begins at a byte. Keys are little-endian, so that most
// machines have them in memory as hashes are.
func key(blob []byte, at int) uint64 { return binary.LittleEndian.Uint64(blob[at:]) }

func checkHashLen(n int) error {
	if n < shortLen {
		return fmt.Errorf("%w: %d", ErrHashLen, n)
	}
	return nil
}
