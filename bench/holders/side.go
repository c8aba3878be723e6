package holders

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// Sides of the comparison.
const (
	Fleet      = "fleet"
	LLMD       = "llm-d"
	LLMDLookup = "llm-d lookup"
)

// sample is what many lookups cost. Its JSON is that of bench/rivals/llmd.
type sample struct {
	Lookups uint64 `json:"lookups"`
	Ns      int64  `json:"ns"`
	Allocs  uint64 `json:"allocs"`
	Bytes   uint64 `json:"bytes"` // allocated
}

func (s sample) nsPerLookup() float64 { return float64(s.Ns) / float64(s.Lookups) }

// index is one of the two that are compared. Queries are numbered from 0. Not safe for
// concurrent use.
type index interface {
	store(ctx context.Context, holder int, keys []byte) error
	add(ctx context.Context, q query) error
	// memory returns the bytes in use after a garbage collection that were not when it was made,
	// and how many it says it has, 0 if it does not say.
	memory(ctx context.Context) (used, stated int64, err error)
	// answer returns how many of a query's first blocks the holders have, by name.
	answer(ctx context.Context, query int) (map[string]int, error)
	// measure asks count queries in turn, each at least once, for about that long; llm-d's with
	// the scorer or without.
	measure(ctx context.Context, score bool, first, count int, d time.Duration) (sample, error)
}

// holderName is the name of a holder in both.
func holderName(holder int) string { return "engine-" + strconv.Itoa(holder) }

// ours is package fleet. It is in this process.
type ours struct {
	fleet   *fleet.Fleet
	holders []*fleet.Holder
	tokens  int64 // of a hash
	held    []bool
	before  measure.Memory
	queries []coordinator.Hashes
	result  fleet.Result
}

func newOurs(o Options) (*ours, error) {
	before := measure.SettledMemory()
	f, err := fleet.New(fleet.Config{BlockSize: o.BlockSize, MaxBytes: fleet.MaxBytes, MaxHolders: o.Holders, MaxBlocks: 2 * maxBlocks})
	if err != nil {
		return nil, err
	}
	s := &ours{fleet: f, tokens: int64(o.BlockSize), held: make([]bool, pieceBlocks), before: before}
	for i := range o.Holders {
		h, err := f.Add(fleet.ID{Engine: holderName(i)})
		if err != nil {
			return nil, err
		}
		h.SetStale(false)
		s.holders = append(s.holders, h)
	}
	return s, nil
}

func (s *ours) store(_ context.Context, holder int, keys []byte) error {
	b := events.Blocks{Tier: events.Tier{Medium: "GPU"}, Hashes: coordinator.NewHashes(keys, keyLen), BlockSize: s.tokens}
	return s.holders[holder].Store(&b, s.held[:b.Hashes.Len()])
}

func (s *ours) add(_ context.Context, q query) error {
	s.queries = append(s.queries, coordinator.NewHashes(q.hashes, hashLen))
	return nil
}

func (s *ours) memory(context.Context) (used, stated int64, err error) {
	return measure.SettledMemory().Since(s.before), s.fleet.Stats().Bytes, nil
}

func (s *ours) answer(_ context.Context, query int) (map[string]int, error) {
	if err := s.fleet.Lookup(&s.result, s.queries[query]); err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, p := range s.result.Holders {
		found[p.Engine] = int(p.Tokens / s.tokens)
	}
	return found, nil
}

func (s *ours) measure(_ context.Context, _ bool, first, count int, d time.Duration) (sample, error) {
	queries := s.queries[first:][:count]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var r sample
	begin := time.Now()
	for r.Lookups < uint64(count) || r.Ns < int64(d) {
		if err := s.fleet.Lookup(&s.result, queries[r.Lookups%uint64(count)]); err != nil {
			return r, fmt.Errorf("holders: %w", err)
		}
		r.Lookups++
		r.Ns = time.Since(begin).Nanoseconds()
	}
	runtime.ReadMemStats(&after)
	r.Allocs, r.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	return r, nil
}
