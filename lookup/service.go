package lookup

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/netproto"
)

// ServiceConfig configures a Service.
type ServiceConfig struct {
	// Pool is the engine whose blocks are looked up.
	Pool coordinator.Pool
	// Memory bounds the index. Places and Groups are filled in from Pool.
	Memory index.Config
	// Version is what stat reports; empty means "devel".
	Version string
}

// maxPlaces bounds groups times ranks: each class of coverage holds a bit for
// every place.
const maxPlaces = 1 << 16

// Service answers lookups over the memory index, in process. Safe for concurrent
// use.
type Service struct {
	coord   *coordinator.Coordinator
	pool    coordinator.Pool
	index   *index.Index
	places  places
	lanes   []lane
	peek    int // raw hashes, see peekHashes
	version string
	queries sync.Pool // of *query

	lookups, hitTokens, missTokens atomic.Int64
}

// NewService checks cfg and returns a service over an empty index. Errors wrap
// those of coordinator.New and index.New, or ErrNotBuilt.
func NewService(cfg ServiceConfig) (*Service, error) {
	coord, err := coordinator.New(cfg.Pool)
	if err != nil {
		return nil, fmt.Errorf("lookup: pool: %w", err)
	}
	pool := coord.Pool()
	if pool.Revision == coordinator.Revision20260604 {
		return nil, fmt.Errorf("%w: revision %s: its engines speak another wire", ErrNotBuilt, pool.Revision)
	}
	p := newPlaces(pool)
	if len(pool.Groups) > index.MaxGroups || p.count() > maxPlaces {
		return nil, fmt.Errorf("%w: a pool of %d groups and %d places (groups times ranks); at most %d and %d are served",
			ErrNotBuilt, len(pool.Groups), p.count(), index.MaxGroups, maxPlaces)
	}
	memory := cfg.Memory
	memory.Places, memory.Groups = p.count(), p.required(coord)
	x, err := index.New(memory)
	if err != nil {
		return nil, fmt.Errorf("lookup: memory backend: %w", err)
	}
	s := &Service{coord: coord, pool: pool, index: x, places: p, lanes: newLanes(coord), peek: peekHashes(coord), version: cfg.Version}
	if s.version == "" {
		s.version = "devel"
	}
	s.queries.New = func() any { return newQuery(s) }
	return s, nil
}

// Lookup returns how many leading tokens of a prompt of numTokens are in the pool
// and loadable, given its hashes (reference: MooncakeStoreWorker.lookup). It fails
// where the reference's lookup does: numTokens no multiple of the scheduler block
// size, or fewer hashes than a window or mamba group must read. hashes is only
// borrowed. It does not allocate in the steady state.
func (s *Service) Lookup(numTokens uint64, hashes netproto.Hashes) (hitTokens uint32, err error) {
	q := s.queries.Get().(*query)
	defer q.release()
	if err := q.run(numTokens, hashes); err != nil {
		return 0, err
	}
	return q.finish()
}

// run takes in a whole request at once.
func (q *query) run(numTokens uint64, hashes netproto.Hashes) error {
	if hashes.HashLen() > netproto.MaxHashLen {
		return netproto.ErrHashLen
	}
	unaligned := numTokens%uint64(q.service.coord.Alignment()) != 0
	if err := q.begin(numTokens, unaligned, hashes.HashLen(), hashes.Len()); err != nil {
		return err
	}
	if hashes.Len() > 0 {
		q.add(hashes.Bytes())
	}
	return nil
}

// Store adds keys, hashes of hashLen bytes joined, to a place: consecutive chunks
// of its group, each keyed by its last hash. keys is only borrowed.
func (s *Service) Store(at Place, keys []byte, hashLen int) error {
	place, ok := s.places.number(at)
	if !ok {
		return ErrPlace
	}
	var w index.Writer
	return s.index.Store(&w, place, keys, hashLen)
}

// Evict takes keys away from a place.
func (s *Service) Evict(at Place, keys []byte, hashLen int) error {
	place, ok := s.places.number(at)
	if !ok {
		return ErrPlace
	}
	_, err := s.index.Evict(place, keys, hashLen)
	return err
}

// Reset forgets every block.
func (s *Service) Reset() { s.index.Reset() }

// Alignment is the number of tokens that a lookup's length must be a multiple of
// at the default revision.
func (s *Service) Alignment() int { return int(s.coord.Alignment()) }

// count adds a finished lookup to the counters. The prompt counts with at most as
// many tokens as its hashes cover.
func (s *Service) count(tokens, hit int64) {
	s.lookups.Add(1)
	s.hitTokens.Add(hit)
	s.missTokens.Add(max(tokens-hit, 0))
}

// clampTokens brings num_tokens into the range that the rules compute with. A
// prompt is never that long, and the number stays aligned.
func (s *Service) clampTokens(n uint64) int64 {
	const most = math.MaxInt64 / 4
	if n <= most {
		return int64(n)
	}
	return most - most%s.coord.Alignment()
}
