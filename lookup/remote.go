package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/ctxerr"
	"github.com/hitline/hitline/lookup/api"
)

// remote asks the backend for the pool of one service. Every call passes the circuit breaker and is
// counted. Safe for concurrent use.
type remote struct {
	*SharedBackend
	service   *Service
	store     backend.Backend // as this pool uses it
	peeker    backend.Peeker  // the same, nil if it is none
	coalescer coalescer
	groups    []groupKeys // of SharedBackend.remembered, by group

	failed, timeouts, rejected atomic.Int64
	rounds, keys               atomic.Int64 // calls of Exists that began, and the keys that they have asked for
	stored, evicted            atomic.Int64
	stores                     atomic.Uint64 // calls of the backend that may have stored keys

	renewedKeys       atomic.Int64
	renewalsDropped   atomic.Int64
	rememberedLookups atomic.Int64 // that made no call, as all was known from calls before
}

func newRemote(service *Service, cfg *ServiceConfig) *remote {
	shared, store := cfg.Shared, cfg.Backend
	if shared == nil {
		shared = NewSharedBackend(cfg.Backend, cfg.Remote, cfg.Logger)
	}
	if store == nil {
		store = shared.store
	}
	r := &remote{SharedBackend: shared, service: service, store: store}
	r.peeker, _ = store.(backend.Peeker)
	for g := range service.coord.NumGroups() {
		r.groups = append(r.groups, newGroupKeys(service.keyPrefixes(g)))
	}
	return r
}

// keyPrefixes returns what the keys of a group begin with on each of its ranks.
func (s *Service) keyPrefixes(g int) (prefixes []string) {
	for _, rank := range s.coord.Ranks(g) {
		prefixes = append(prefixes, s.coord.KeyPrefix(g, rank))
	}
	return prefixes
}

// Backend returns what the service asks, nil over the memory index.
func (s *Service) Backend() *SharedBackend {
	if s.remote == nil {
		return nil
	}
	return s.remote.SharedBackend
}

// lookup returns the hit of numTokens tokens over the backend. A failing backend is a hit
// of 0 and no error, as in the reference. It fails where the rules do, and with ErrTooManyKeys and
// ErrNoMemory.
func (r *remote) lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (Answer, error) {
	return r.end(ctx, numTokens, hashes, r.lookupCoalesced(ctx, numTokens, hashes))
}

// peek is lookup for a prompt that nobody is about to load. No lookup may share its outcome.
func (r *remote) peek(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (Answer, error) {
	if r.peeker == nil {
		return r.lookup(ctx, numTokens, hashes)
	}
	return r.end(ctx, numTokens, hashes, r.ask(ctx, numTokens, hashes, true))
}

// end counts a lookup with its outcome, and returns the answer.
func (r *remote) end(ctx context.Context, numTokens int64, hashes coordinator.Hashes, o outcome) (Answer, error) {
	if o.err != nil {
		return Answer{}, o.err
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		r.service.counters.count(&r.service.counters.stripes[0]) // calls of the backend share more than this
	}
	hit, err := r.service.newHit(o.hit)
	if err != nil {
		return Answer{}, err
	}
	hit.TailBoundaries = slices.Clone(hit.TailBoundaries) // others may share the outcome
	return Answer{Hit: hit, Ending: o.ending}, nil
}

// lookupCoalesced shares the outcome of an equal lookup in flight, or asks the backend.
func (r *remote) lookupCoalesced(ctx context.Context, numTokens int64, hashes coordinator.Hashes) outcome {
	leader, shared := r.coalescer.join(ctx, r.sharingEpoch(), numTokens, hashes)
	if shared != nil {
		return *shared
	}
	if leader == nil {
		return r.ask(ctx, numTokens, hashes, false)
	}
	defer r.coalescer.finish(leader)
	leader.outcome.incomplete = true // if it panics, followers ask themselves
	leader.outcome = r.ask(leader.ctx, numTokens, hashes, false)
	return leader.outcome
}

// ask asks the backend.
func (r *remote) ask(ctx context.Context, numTokens int64, hashes coordinator.Hashes, peek bool) (o outcome) {
	l := r.newLookup(ctx)
	defer l.end()
	l.peek = peek
	o.hit, o.ending, o.err = r.service.coord.LookupEnding(numTokens, hashes, l)
	if l.refused != nil {
		o.err = l.refused
	}
	o.incomplete = l.incomplete
	l.countRemembered()
	return o
}

// explain returns the explanation of a lookup over the backend. It fails when the backend
// does.
func (r *remote) explain(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Explanation, error) {
	l := r.newLookup(ctx)
	l.peek = r.peeker != nil
	defer l.end()
	if err := ctx.Err(); err != nil { // no call can be made, so build no keys
		return api.Explanation{}, r.countLate(err, false)
	}
	answer, ends, ending, err := r.service.coord.LookupExplain(numTokens, hashes, l)
	if err != nil {
		return api.Explanation{}, err
	}
	hit, err := r.service.newHit(answer)
	e := api.NewExplanation(hit, ends)
	e.StartTokens, e.Ending = hashes.Start(), ending
	return e, err
}

// exists makes one call of the backend, or with peek of the peeker, for keys. memory is held until the call returns.
// Keys that the backend has left out are not counted.
func (r *remote) exists(ctx context.Context, keys backend.Keys, memory *keyBytes, peek bool) ([]int, error) {
	call, err := r.beginRead(ctx)
	if err != nil {
		return nil, err
	}
	r.rounds.Add(1)
	answers, err := r.reads.run(ctx, callExists, memory, func() ([]int, error) { return r.question(peek)(ctx, keys) })
	asked := keys.Len()
	if err == nil {
		asked = min(asked, len(answers))
	}
	r.keys.Add(int64(asked))
	return answers, call.end(err)
}

// question returns Exists, or with peek Peek.
func (r *remote) question(peek bool) func(context.Context, backend.Keys) ([]int, error) {
	if peek {
		return r.peeker.Peek
	}
	return r.store.Exists
}

// countLate counts a request whose time was up before a call, and returns why in words.
func (r *remote) countLate(why error, change bool) error {
	if !errors.Is(why, context.DeadlineExceeded) {
		return why
	}
	r.timeouts.Add(1)
	return r.withLimit(ctxerr.Explain(why, errors.New("the time was up before the store was asked")), change)
}

// withLimit adds to the error of a request whose time was up the setting that bounds it. None bounds changes.
func (r *remote) withLimit(err error, change bool) error {
	if change {
		return err
	}
	return fmt.Errorf("%w; backend.%s.timeout is %v", err, r.store.Name(), r.cfg.Timeout)
}
