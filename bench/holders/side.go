//go:build linux

package holders

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

// The sides that are package fleet, by the hashes of the queries.
const (
	Fleet   = "fleet"
	Fleet32 = "fleet, 32-byte hashes"
)

// index is one of those that are compared. Queries are numbered from 0. Not safe for
// concurrent use.
type index interface {
	// store stores keys, which come after parent in a prompt, nil at its beginning.
	store(ctx context.Context, holder int, parent, keys []byte) error
	add(ctx context.Context, q query) error
	// memory returns the bytes in use after a garbage collection that were not when it was made.
	memory(ctx context.Context) (int64, error)
	// answer returns how many of a query's first blocks the holders have, by name.
	answer(ctx context.Context, query int) (map[string]int, error)
	// measure returns how long a query takes.
	measure(ctx context.Context, query int) (ns int64, err error)
}

// holderName is the name of a holder in all.
func holderName(holder int) string { return "engine-" + strconv.Itoa(holder) }

// ours is package fleet. It is in this process.
type ours struct {
	fleet   *fleet.Fleet
	holders []*fleet.Holder
	tokens  int64 // of a hash
	held    []bool
	before  measure.Memory
	hashLen int // of the queries: hashLen, or keyLen
	queries []coordinator.Hashes
	result  fleet.Result
}

func newOurs(o Options) (*ours, error) {
	before := measure.SettledMemory()
	f, err := fleet.New(fleet.Config{BlockSize: blockSize, MaxBytes: fleet.MaxBytes, MaxHolders: o.Holders, MaxBlocks: 2 * maxBlocks})
	if err != nil {
		return nil, err
	}
	s := &ours{fleet: f, hashLen: keyLen, tokens: blockSize, held: make([]bool, pieceBlocks), before: before}
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

func (s *ours) store(_ context.Context, holder int, parent, keys []byte) error {
	b := events.Blocks{Tier: events.Tier{Medium: "GPU"}, Parent: parent, BlockSize: s.tokens}
	b.Hashes = coordinator.NewHashes(keys, keyLen)
	return s.holders[holder].Store(&b, s.held[:b.Hashes.Len()])
}

func (s *ours) add(_ context.Context, q query) error {
	if s.hashLen == hashLen {
		s.queries = append(s.queries, coordinator.NewHashes(q.hashes, hashLen))
		return nil
	}
	keys := make([]byte, 0, len(q.hashes)/hashLen*keyLen)
	for _, key := range q.keys() {
		keys = binary.BigEndian.AppendUint64(keys, key)
	}
	s.queries = append(s.queries, coordinator.NewHashes(keys, keyLen))
	return nil
}

func (s *ours) memory(context.Context) (int64, error) {
	return measure.SettledMemory().Since(s.before), nil
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

func (s *ours) measure(_ context.Context, query int) (ns int64, err error) {
	begin := time.Now()
	err = s.fleet.Lookup(&s.result, s.queries[query])
	return time.Since(begin).Nanoseconds(), err
}
