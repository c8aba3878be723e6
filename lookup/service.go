package lookup

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/lookup/api"
)

// ServiceConfig configures a Service.
type ServiceConfig struct {
	// Pool is the engine whose blocks are looked up.
	Pool coordinator.Pool
	// Memory bounds the index. NewService sets its Places, Groups and HashLen from Pool.
	Memory index.Config
	// Backend, if set, is asked instead of a memory index. The caller closes it after the
	// last call of the service has returned; abandoned changes may then still run.
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

// Service answers lookups over the memory index or over a backend, in process. It need not
// be closed: its memory is freed with it. Safe for concurrent use.
type Service struct {
	rules
	configured coordinator.Pool // before New filled in its defaults
	ranks      groupRanks
	places     [][]int      // by group: those of its ranks, ascending
	memory     *Memory      // nil over a backend
	remote     *PoolBackend // nil over the memory index
	version    string
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
	s := &Service{
		rules: newRules(coord), configured: cfg.Pool, ranks: newGroupRanks(coord),
		version: cmp.Or(cfg.Version, "devel"), counters: newCounters(),
	}
	for _, places := range s.ranks.required(coord) {
		s.places = append(s.places, slices.Sorted(slices.Values(places)))
	}
	if cfg.Backend == nil && cfg.Shared == nil {
		s.memory, err = newMemory(s.rules, &s.ranks, s.counters, cfg.Memory)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	shared, store := cfg.Shared, cfg.Backend
	if shared == nil {
		shared = NewSharedBackend(store, cfg.Remote, cfg.Logger)
	}
	s.remote = newPoolBackend(shared, store, s.rules, s.counters)
	return s, nil
}

// Memory returns the memory index, nil over a backend.
func (s *Service) Memory() *Memory { return s.memory }

// Backend returns the store as this pool uses it, nil over the memory index.
func (s *Service) Backend() *PoolBackend { return s.remote }

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

// PeekPrompt is LookupPrompt for a prompt that nobody is about to load: a store leases none of its
// blocks if it can.
func (s *Service) PeekPrompt(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
	answer, err := s.lookup(ctx, s.alignPrompt(numTokens), hashes, LookupOptions{mode: modePeek})
	return answer.Hit, err
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
// error nil. It fails with ErrTooManyKeys. A lookup whose ctx is cancelled is not
// counted. A lookup waits until the call of a backend has returned: see backend.Backend.
func (s *Service) Lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
	answer, err := s.lookup(ctx, numTokens, hashes, LookupOptions{})
	return answer.Hit, err
}

// LookupAnswer is Lookup with the ending of its hit, and with options.
func (s *Service) LookupAnswer(ctx context.Context, numTokens int64, hashes coordinator.Hashes, o LookupOptions) (Answer, error) {
	if s.remote != nil {
		return s.lookup(ctx, numTokens, hashes, o)
	}
	q := s.memory.NewQuery()
	defer q.Release()
	hit, err := s.lookUp(q, numTokens, hashes)
	if err != nil {
		return Answer{}, err
	}
	return Answer{Hit: hit, Ending: q.Ending(hit)}, nil
}

// lookUp looks a prompt up in the index, in a new query.
func (s *Service) lookUp(q *Query, numTokens int64, hashes coordinator.Hashes) (api.Hit, error) {
	if err := s.checkPrompt(numTokens, hashes); err != nil {
		return api.Hit{}, err
	}
	if err := q.addAll(numTokens, hashes); err != nil {
		return api.Hit{}, err
	}
	hit, err := q.Finish()
	if hit.TailBoundaries != nil {
		hit.TailBoundaries = slices.Clone(hit.TailBoundaries) // they were the query's
	}
	return hit, err
}

// lookup is Lookup with options, which matter over a store alone.
func (s *Service) lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes, o LookupOptions) (Answer, error) {
	if r := s.remote; r != nil {
		if err := s.checkPrompt(numTokens, hashes); err != nil {
			return Answer{}, err
		}
		return r.lookup(ctx, s.clampPrompt(numTokens), hashes, o)
	}
	q := s.memory.NewQuery()
	defer q.Release()
	hit, err := s.lookUp(q, numTokens, hashes)
	return Answer{Hit: hit}, err
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
		ctx, cancel := withTimeout(ctx, r.shared.cfg.WriteTimeout)
		defer cancel()
		if evict {
			return r.evictKeys(ctx, at, keys)
		}
		return r.storeKeys(ctx, at, keys)
	}
	c := Change{index: s.memory.index, place: place, evict: evict}
	err = c.Add(keys.Bytes(), keys.HashLen())
	return markPartlyDone(c.Changed() > 0, err)
}

// Reset removes every block. Over the memory index it does not fail.
func (s *Service) Reset(ctx context.Context) error {
	if s.remote == nil {
		s.memory.index.Reset()
		return nil
	}
	ctx, cancel := withTimeout(ctx, s.remote.shared.cfg.WriteTimeout)
	defer cancel()
	return s.remote.reset(ctx)
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

// PromptAlignment returns what the tokens of a Lookup must be a multiple of: 1 from vLLM 0.27.0 on.
func (s *Service) PromptAlignment() int64 { return s.promptAlignment() }

// Alignment returns the number of tokens that hits are multiples of. Up to vLLM
// 0.26.0 the length of a lookup must be one, too.
func (s *Service) Alignment() int { return int(s.coord.Alignment()) }

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
