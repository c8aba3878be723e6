package lookup

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// ServiceConfig configures a Service.
type ServiceConfig struct {
	// Pool is the engine whose blocks are looked up.
	Pool coordinator.Pool
	// Memory bounds the index. NewService sets its Places, Groups and HashLen from Pool.
	Memory index.Config
	// Backend, if set, is asked instead of a memory index. The caller closes it after the
	// last call of the service has returned; abandoned calls may then still run.
	Backend backend.Backend
	// Remote configures how Backend is used.
	Remote RemoteConfig
	// Shared, if set, is asked together with the services of other pools, and Remote has no effect.
	// Backend may be left out, or be the same store as this pool uses it.
	Shared *SharedBackend
	// Logger logs when Backend begins to fail and when it has recovered. nil discards it.
	Logger *slog.Logger
	// Version is reported by Stat. Empty means "devel".
	Version string
}

// maxGroupRanks bounds groups times ranks: each class of coverage holds a bit for
// every rank.
const maxGroupRanks = 1 << 16

// Service answers lookups over the memory index or over a backend, in process. It need not
// be closed: its memory is freed with it. Safe for concurrent use.
type Service struct {
	coord      *coordinator.Coordinator
	pool       coordinator.Pool
	configured coordinator.Pool // before New filled in its defaults
	index      *index.Index     // nil over a backend
	remote     *remote          // nil over the memory index
	ranks      groupRanks
	required   [][]int // by group: the places of its ranks, in their order
	places     [][]int // the same, ascending
	groupSets  []groupSet
	version    string
	queries    *sync.Pool // of *Query
	counters   *counters
}

// NewService checks cfg and returns a service over cfg.Backend or, if there is
// none, over an empty index. Errors wrap those of coordinator.New and index.New,
// or ErrUnsupported.
func NewService(cfg ServiceConfig) (*Service, error) {
	coord, err := coordinator.New(cfg.Pool)
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	if n := coord.NumGroups(); n > index.MaxGroups {
		return nil, fielderror.New([]string{"groups"}, "%w: a pool of %d groups; at most %d are served", ErrUnsupported, n, index.MaxGroups)
	}
	pool := coord.Pool()
	s := &Service{coord: coord, pool: pool, configured: cfg.Pool, ranks: newGroupRanks(coord), version: cfg.Version, counters: newCounters()}
	if s.version == "" {
		s.version = "devel"
	}
	s.required = s.ranks.required(coord)
	for _, places := range s.required {
		s.places = append(s.places, slices.Sorted(slices.Values(places)))
	}
	if cfg.Backend != nil || cfg.Shared != nil {
		s.remote = newRemote(s, &cfg)
		return s, nil
	}
	if err := s.useMemory(cfg.Memory); err != nil {
		return nil, err
	}
	return s, nil
}

// useMemory creates an empty index.
func (s *Service) useMemory(memory index.Config) error {
	p := &s.ranks
	if p.count() > maxGroupRanks {
		return fielderror.New([]string{"groups"}, "%w: a pool of %d ranks (of all groups); at most %d are served over memory",
			ErrUnsupported, p.count(), maxGroupRanks)
	}
	memory.Places, memory.Groups, memory.HashLen = p.count(), s.required, s.pool.HashLen
	x, err := index.New(memory)
	if err != nil {
		return fmt.Errorf("memory backend: %w", err)
	}
	s.index, s.groupSets = x, newGroupSets(s.coord)
	s.queries = &sync.Pool{New: func() any { return newQuery(s) }}
	return nil
}

// LimitMemory sets the byte bound of the memory index, or the least one that its entries need if that is more. It returns
// the bound, 0 over a backend.
func (s *Service) LimitMemory(maxBytes int64) int64 {
	if s.index == nil {
		return 0
	}
	return s.index.Limit(maxBytes)
}

// Places returns the places of each group: a place is a group on one rank. The caller must not modify them.
func (s *Service) Places() [][]int { return s.places }

// Place returns the place of a group rank. It fails with ErrGroupRank.
func (s *Service) Place(at coordinator.GroupRank) (int, error) { return s.ranks.place(at) }

// LookupPrompt is Lookup for a prompt of any number of tokens. Up to vLLM 0.26.0,
// whose lookups are about multiples of the scheduler block size, it rounds numTokens
// down to one first, as vLLM's scheduler does; from 0.27.0 on the lookup itself rounds.
// A hit can be all of the remaining tokens: a caller that needs the logits of the last
// one computes its block again.
func (s *Service) LookupPrompt(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
	return s.Lookup(ctx, s.alignPrompt(numTokens), hashes)
}

// PeekPrompt is LookupPrompt for a prompt that nobody is about to load: a backend.Peeker leases none
// of its blocks.
func (s *Service) PeekPrompt(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
	answer, err := s.lookup(ctx, s.alignPrompt(numTokens), hashes, true)
	return answer.Hit, err
}

// alignPrompt rounds numTokens down as vLLM's scheduler does.
func (s *Service) alignPrompt(numTokens int64) int64 {
	return numTokens - max(numTokens, 0)%s.PromptAlignment() // Lookup refuses negative ones
}

// PromptAlignment returns what the tokens of a Lookup must be a multiple of: 1 from vLLM 0.27.0 on.
func (s *Service) PromptAlignment() int64 {
	if s.coord.NeedsAligned() {
		return s.coord.Alignment()
	}
	return 1
}

var _ api.PrefixCache = (*Service)(nil)

// Lookup returns how many leading tokens of a prompt of numTokens are in the pool
// and loadable, given its hashes (reference: MooncakeStoreWorker.lookup). It fails
// where the reference's lookup does: numTokens no multiple of the scheduler block
// size, see LookupPrompt, or fewer hashes than a window or mamba group must read.
// hashes is only borrowed.
//
// If an engine holds the first tokens of the prompt itself, hashes may begin there: see
// coordinator.Hashes.From. The lookup is then from that start on, by the rule of
// coordinator.CheckStart: keys before it are neither asked nor read, and a hit at or below it means
// that there is nothing to load. A start that is no multiple of the scheduler block size fails: cut
// the hashes of a whole prompt with coordinator.HashesFrom, which rounds.
//
// Over the memory index it ignores ctx, and does not allocate in the steady state. Over a backend it
// waits for the answer until ctx ends, at most RemoteConfig.Timeout and some
// milliseconds. If the backend fails or is late, or ctx ends first, the hit is 0 and the
// error nil. It fails with ErrTooManyKeys and ErrNoMemory. A lookup whose ctx is cancelled is not
// counted. A call of a backend that does not heed its context is abandoned. While 64 or more such
// calls have not returned, further ones are not made: see backend.Backend.
func (s *Service) Lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
	answer, err := s.lookup(ctx, numTokens, hashes, false)
	return answer.Hit, err
}

// Answer is a hit, and where the blocks end that the lookup has found.
type Answer struct {
	Hit    api.Hit
	Ending coordinator.Ending
}

// LookupAnswer is Lookup with the ending of its hit.
func (s *Service) LookupAnswer(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (Answer, error) {
	return s.lookup(ctx, numTokens, hashes, false)
}

// LookupKnown is Lookup over a backend of which every block that matters was found a moment ago. It makes no
// call, and takes some 150 microseconds at most, so that an event loop may call it. It returns false if Lookup
// would have to call the backend, or would take longer or fail.
func (s *Service) LookupKnown(numTokens int64, hashes coordinator.Hashes) (Answer, bool) {
	if s.remote == nil || s.checkPrompt(numTokens, hashes) != nil {
		return Answer{}, false
	}
	return s.remote.lookupKnown(s.clampPrompt(numTokens), hashes)
}

// lookup is Lookup, or with peek for blocks that nobody is about to load.
func (s *Service) lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes, peek bool) (Answer, error) {
	if err := s.checkPrompt(numTokens, hashes); err != nil {
		return Answer{}, err
	}
	if r := s.remote; r != nil {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
		defer cancel()
		if peek {
			return r.peek(ctx, s.clampPrompt(numTokens), hashes)
		}
		return r.lookup(ctx, s.clampPrompt(numTokens), hashes)
	}
	q := s.NewQuery()
	defer q.Release()
	if err := q.addAll(numTokens, hashes); err != nil {
		return Answer{}, err
	}
	hit, err := q.Finish()
	if hit.TailBoundaries != nil {
		hit.TailBoundaries = slices.Clone(hit.TailBoundaries) // they were the query's
	}
	return Answer{Hit: hit}, err
}

// checkPrompt returns an error if no prompt has this length or these hashes, or no lookup their start.
func (s *Service) checkPrompt(numTokens int64, hashes coordinator.Hashes) error {
	if numTokens < 0 {
		return fmt.Errorf("%w: num_tokens %d", ErrTokens, numTokens)
	}
	if hashes.HashLen() > netproto.MaxHashLen {
		return ErrHashLen
	}
	return s.coord.CheckStart(hashes.Start(), numTokens)
}

// addAll begins the query and adds all hashes at once.
func (q *Query) addAll(numTokens int64, hashes coordinator.Hashes) error {
	n := uint64(numTokens)
	wanted, err := q.Begin(n, q.service.unaligned(n), hashes.Start(), hashes.HashLen(), hashes.Len())
	if wanted {
		q.Add(hashes.Bytes())
	}
	return err
}

// Store adds keys to a group rank: consecutive chunks of its group, each keyed by its last
// hash. keys is only borrowed. It fails with ErrGroupRank, with ErrHashLen or
// ErrCutKey for keys that are not whole hashes of 1 to 64 bytes, with
// index.ErrOtherHashLen if the index holds hashes of another length or index.ErrClasses, and over a
// backend if that fails or RemoteConfig.WriteTimeout is up. If some keys were stored before, the
// error wraps api.ErrPartlyDone.
func (s *Service) Store(ctx context.Context, at coordinator.GroupRank, keys coordinator.Hashes) error {
	return s.change(ctx, at, keys, false)
}

// Evict removes keys from a group rank. It fails as Store does.
func (s *Service) Evict(ctx context.Context, at coordinator.GroupRank, keys coordinator.Hashes) error {
	return s.change(ctx, at, keys, true)
}

// change stores or evicts keys.
func (s *Service) change(ctx context.Context, at coordinator.GroupRank, keys coordinator.Hashes, evict bool) error {
	place, err := s.ranks.place(at)
	if err != nil {
		return err
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	if r := s.remote; r != nil {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.WriteTimeout)
		defer cancel()
		if evict {
			return r.evictKeys(ctx, at, keys)
		}
		return r.storeKeys(ctx, at, keys)
	}
	c := Change{service: s, place: place, evict: evict}
	err = c.Add(keys.Bytes(), keys.HashLen())
	return markPartlyDone(c.Changed() > 0, err)
}

// checkKeys refuses keys that cannot be stored or evicted.
func checkKeys(keys coordinator.Hashes) error {
	switch n := keys.HashLen(); {
	case n < 1 || n > netproto.MaxHashLen:
		return ErrHashLen
	case len(keys.Blob())%n != 0:
		return ErrCutKey
	}
	return nil
}

// Reset removes every block. Over the memory index it does not fail.
func (s *Service) Reset(ctx context.Context) error {
	if s.remote == nil {
		s.index.Reset()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.remote.cfg.WriteTimeout)
	defer cancel()
	return s.remote.reset(ctx)
}

// LeaseLeft returns for how long after its answer, at least, the backend keeps a block that a lookup has found, 0 if
// that is not known: Lease less the time for which it may have been remembered.
func (s *Service) LeaseLeft() time.Duration {
	if s.remote == nil {
		return 0
	}
	return max(0, s.Lease()-time.Duration(s.remote.rememberFor()))
}

// Lease returns for how long at least the backend keeps a block after it was asked for it, 0 if that is not known.
func (s *Service) Lease() time.Duration {
	if s.remote == nil {
		return 0
	}
	if l, ok := s.remote.store.(backend.Leaser); ok {
		return l.Lease().Duration
	}
	return 0
}

// BackendTimeout returns how long a lookup waits for the backend, 0 over memory.
func (s *Service) BackendTimeout() time.Duration {
	if s.remote == nil {
		return 0
	}
	return s.remote.cfg.Timeout
}

// EvictionAge returns for how long, at least, what a memory index evicted last to make room was not used, and whether it has
// evicted anything for that since the last Reset. It is exact to a 32nd of the time since the first call if it is called
// about once a second, as a server does. Over a backend it returns false.
func (s *Service) EvictionAge(now time.Time) (age time.Duration, evicts bool) {
	if s.index == nil {
		return 0, false
	}
	return s.index.EvictionAge(now)
}

// CheckReset returns an error if the backend refuses every Reset.
func (s *Service) CheckReset() error {
	if s.remote == nil {
		return nil
	}
	if c, ok := s.remote.store.(backend.ResetChecker); ok {
		return c.CheckReset()
	}
	return nil
}

// Pool returns the pool with its defaults filled in. The caller owns the copy.
func (s *Service) Pool() coordinator.Pool { return s.coord.Pool() }

// Compare returns the fields in which the description of a pool differs from this one: see
// coordinator.Coordinator.Compare.
func (s *Service) Compare(described *coordinator.Coordinator) []coordinator.Difference {
	return s.coord.Compare(s.configured, described)
}

// Coordinator returns the rules of the pool.
func (s *Service) Coordinator() *coordinator.Coordinator { return s.coord }

// Alignment returns the number of tokens that hits are multiples of. Up to vLLM
// 0.26.0 the length of a lookup must be one, too.
func (s *Service) Alignment() int { return int(s.coord.Alignment()) }

// HasTailBoundaries reports whether hits have tail boundaries: from vLLM 0.29.0 on.
func (s *Service) HasTailBoundaries() bool { return s.coord.HasTailBoundaries() }

// Needed returns the number of tokens that a lookup is about, lowered to what the rules can compute
// with, and how many of its numHashes hashes, which begin at token start, can change the answer.
// Lookup, Explain and Plan of numTokens answer the same for the first needed hashes as for all.
// unaligned and start are as for Query.Begin. It fails where the rules refuse the number of tokens.
func (s *Service) Needed(tokens uint64, unaligned bool, start int64, numHashes int) (numTokens int64, needed int, err error) {
	numTokens = s.clampTokens(tokens, unaligned)
	if numTokens == 0 || numHashes == 0 {
		return numTokens, 0, nil // answered 0 before anything is checked
	}
	tokenLen, err := s.coord.TokenLen(numTokens)
	if err != nil {
		return numTokens, 0, err
	}
	needed = s.coord.NeededHashes(tokenLen)
	if s.pool.CapacityOnly { // no key is checked, but misses are counted and explained
		hashBlock := int64(s.pool.HashBlockSize)
		needed = int(min((tokenLen+hashBlock-1)/hashBlock, math.MaxInt))
	}
	needed -= int(start / int64(s.pool.HashBlockSize))
	return numTokens, min(numHashes, max(needed, 0)), nil
}

// WithRetentionInterval returns a service over the same index or store, with the same counters,
// that makes store masks and stores prompts by another retention interval, nil for none. It fails
// as coordinator.WithRetentionInterval does.
func (s *Service) WithRetentionInterval(interval *int) (*Service, error) {
	rules, err := s.coord.WithRetentionInterval(interval)
	if err != nil {
		return nil, err
	}
	view := *s
	view.coord = rules
	return &view, nil
}

// clampTokens lowers a number of tokens to what the rules can compute with. No prompt is
// that long. An aligned number stays aligned, any other stays unaligned.
func (s *Service) clampTokens(n uint64, unaligned bool) int64 {
	const maxTokens = math.MaxInt64 / 4
	clamped := int64(min(n, maxTokens))
	if n > maxTokens {
		clamped -= maxTokens % s.coord.Alignment()
	}
	if unaligned && clamped%s.coord.Alignment() == 0 {
		clamped++ // clamping has aligned it
	}
	return clamped
}

// clampPrompt is clampTokens for a number that checkPrompt has accepted.
func (s *Service) clampPrompt(numTokens int64) int64 {
	n := uint64(numTokens)
	return s.clampTokens(n, s.unaligned(n))
}

// unaligned reports whether n is no multiple of the alignment. n is not clamped.
func (s *Service) unaligned(n uint64) bool { return n%uint64(s.coord.Alignment()) != 0 }
