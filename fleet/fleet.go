package fleet

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/netproto"
)

// Fleet is who holds what of one model: engines whose block hashes can be compared. Safe for
// concurrent use.
type Fleet struct {
	cfg Config

	mu      sync.RWMutex
	holders map[ID]*Holder
}

// New returns a fleet without holders. Its errors are ErrConfig.
func New(cfg Config) (*Fleet, error) {
	if cfg.BlockSize <= 0 {
		return nil, fmt.Errorf("%w: a block of %d tokens", ErrConfig, cfg.BlockSize)
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	return &Fleet{cfg: cfg, holders: map[ID]*Holder{}}, nil
}

// Add adds a holder, which is stale until SetStale(false). It fails with ErrExists or ErrTooMany.
func (f *Fleet) Add(id ID) (*Holder, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holders[id] != nil {
		return nil, fmt.Errorf("%w: %q, rank %d", ErrExists, id.Instance, id.Rank)
	}
	h := &Holder{fleet: f, id: id, stale: true, blocks: map[blockKey]time.Time{}}
	f.holders[id] = h
	return h, nil
}

// Get returns a holder, nil if there is none of this name.
func (f *Fleet) Get(id ID) *Holder {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.holders[id]
}

// BlockSize returns how many tokens one hash of a query covers.
func (f *Fleet) BlockSize() int { return f.cfg.BlockSize }

// Status is the state of one holder.
type Status struct {
	ID
	Stale  bool
	Blocks int // entries in all groups and tiers, and predicted ones
}

// Holders returns the state of all holders, by Instance and Rank.
func (f *Fleet) Holders() []Status {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var list []Status
	for id, h := range f.holders {
		list = append(list, Status{ID: id, Stale: h.stale, Blocks: len(h.blocks)})
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(strings.Compare(a.Instance, b.Instance), cmp.Compare(a.Rank, b.Rank))
	})
	return list
}

// Stats are figures of a Fleet.
type Stats struct {
	Holders  int
	Blocks   int64 // different blocks, in each group
	Entries  int64 // blocks of each holder and tier
	Sets     int   // different sets of holders
	Bytes    int64 // of memory
	MaxBytes int64
}

// Stats returns the figures.
func (f *Fleet) Stats() Stats {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return Stats{Holders: len(f.holders), MaxBytes: f.cfg.MaxBytes}
}

// Lookup finds out what the holders have of a prompt with these hashes, which are of 8 bytes or longer: it
// reads their short form. It fails with ErrHashLen. hashes is only borrowed.
func (f *Fleet) Lookup(r *Result, hashes netproto.Hashes) error {
	var q Query
	if err := q.Begin(f, hashes.HashLen()); err != nil {
		return err
	}
	q.Add(hashes.Bytes())
	q.End(r)
	return nil
}

// Query is one lookup whose hashes arrive in pieces. The zero value is ready, and a Query is reused: nothing
// is allocated in the steady state. It belongs to one goroutine at a time.
type Query struct {
	fleet   *Fleet
	hashLen int
	hashes  []byte
}

// Begin starts a query about hashes of hashLen bytes. It fails with ErrHashLen.
func (q *Query) Begin(f *Fleet, hashLen int) error {
	if hashLen < 8 {
		return fmt.Errorf("%w: %d", ErrHashLen, hashLen)
	}
	q.fleet, q.hashLen, q.hashes = f, hashLen, q.hashes[:0]
	return nil
}

// Add adds the next hashes, whole ones, which are only borrowed. wanted is false if no further hash can
// change the answer.
func (q *Query) Add(hashes []byte) (wanted bool) {
	q.hashes = append(q.hashes, hashes...)
	return true
}

// Held returns the bytes of memory that the query holds, for servers that bound what their clients hold.
func (q *Query) Held() int { return cap(q.hashes) }

// End sets r to the answer.
func (q *Query) End(r *Result) {
	f := q.fleet
	f.mu.RLock()
	defer f.mu.RUnlock()
	r.Holders = r.Holders[:0]
	for id, h := range f.holders {
		p := Prefix{ID: id}
		media := map[string]bool{}
		for k := range h.blocks {
			media[k.medium()] = true
		}
		for m := range media {
			if n := h.prefix(q, m); n > 0 {
				p.Media = append(p.Media, MediumPrefix{m, int64(n) * int64(f.cfg.BlockSize)})
			}
		}
		p.Tokens = int64(h.prefix(q, "")) * int64(f.cfg.BlockSize)
		slices.SortFunc(p.Media, func(a, b MediumPrefix) int { return strings.Compare(a.Medium, b.Medium) })
		if p.Tokens > 0 {
			r.Holders = append(r.Holders, p)
		}
	}
	slices.SortFunc(r.Holders, func(a, b Prefix) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), strings.Compare(a.Instance, b.Instance), cmp.Compare(a.Rank, b.Rank))
	})
}

type blockKey struct {
	hash      uint64
	group     int
	tier      events.Tier
	predicted bool
}

func (k blockKey) medium() string {
	if k.predicted {
		return Predicted
	}
	return k.tier.Medium
}

func (c *Config) short(hash []byte) uint64 {
	if c.FirstBytes {
		return binary.BigEndian.Uint64(hash)
	}
	return binary.BigEndian.Uint64(hash[len(hash)-8:])
}

// prefix is for one full-attention group.
func (h *Holder) prefix(q *Query, medium string) int {
	n := 0
	for hash := range slices.Chunk(q.hashes, q.hashLen) {
		found := false
		for k, until := range h.blocks {
			if k.hash != h.fleet.cfg.short(hash) || medium != "" && k.medium() != medium {
				continue
			}
			found = found || k.predicted && h.fleet.cfg.now().Before(until) || !k.predicted && !h.stale
		}
		if !found {
			break
		}
		n++
	}
	return n
}
