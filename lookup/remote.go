package lookup

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// Remote asks the backend for the pool of one service. Every call passes the circuit breaker and is counted.
// Methods that take a context wait, so they must not run on an event loop. Safe for
// concurrent use.
type Remote struct {
	*SharedBackend
	service   *Service
	store     backend.Backend // as this pool uses it
	watch     func(LookupEvent)
	coalescer coalescer

	failed, timeouts, rejected atomic.Int64
	rounds, keys               atomic.Int64 // calls of Exists that began, and the keys that they asked for
	stored, evicted            atomic.Int64
}

func newRemote(service *Service, cfg *ServiceConfig) *Remote {
	shared, store := cfg.Shared, cfg.Backend
	if shared == nil {
		shared = NewSharedBackend(cfg.Backend, cfg.Remote, cfg.Logger)
	}
	if store == nil {
		store = shared.store
	}
	return &Remote{SharedBackend: shared, service: service, store: store, watch: cfg.Remote.Watch}
}

// Remote returns what asks the service's backend, nil over the memory index.
func (s *Service) Remote() *Remote { return s.remote }

// Lookup returns the hit of numTokens tokens over the backend. A failing backend is a hit
// of 0 and no error, as in the reference; errors of the rules are returned. numHashes is
// how many hashes the request has; hashes are those that can change the answer, see
// Needed. Cancel ctx when nobody waits for the answer any longer.
func (r *Remote) Lookup(ctx context.Context, numTokens int64, numHashes int, hashes coordinator.Hashes) (api.Hit, error) {
	o := r.lookupCoalesced(ctx, numTokens, hashes)
	if o.err != nil {
		return api.Hit{}, o.err
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		r.CountLookup(numTokens, hashes.Len(), o.hit.Tokens)
	}
	hit, err := r.service.newHit(o.hit)
	if err != nil {
		return api.Hit{}, err
	}
	hit.TailBoundaries = slices.Clone(hit.TailBoundaries) // others may share the outcome
	if r.watch != nil {
		r.watch(LookupEvent{NumTokens: numTokens, NumHashes: numHashes, Hashes: hashes, Hit: hit})
	}
	return hit, nil
}

// lookupCoalesced shares the outcome of an equal lookup in flight, or asks the backend.
func (r *Remote) lookupCoalesced(ctx context.Context, numTokens int64, hashes coordinator.Hashes) outcome {
	leader, shared := r.coalescer.join(ctx, numTokens, hashes)
	if shared != nil {
		return *shared
	}
	if leader == nil {
		return r.lookup(ctx, numTokens, hashes)
	}
	defer r.coalescer.finish(leader) // also if the backend panics
	leader.outcome = r.lookup(leader.ctx, numTokens, hashes)
	return leader.outcome
}

// lookup asks the backend.
func (r *Remote) lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (o outcome) {
	lease := r.lease(ctx, len(hashes.Bytes()))
	defer lease.end()
	strategy := r.cfg.Strategy
	if ctx.Err() != nil {
		strategy = Gallop // no call is made, so build few keys
	}
	o.hit, o.err = strategy.lookup(r.service.coord, numTokens, hashes, lease)
	o.incomplete = lease.incomplete
	return o
}

// Explain returns the explanation of a lookup over the backend. It fails when the backend
// does.
func (r *Remote) Explain(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Explanation, error) {
	lease := r.lease(ctx, len(hashes.Bytes()))
	defer lease.end()
	if err := ctx.Err(); err != nil { // no call can be made, so build no keys
		return api.Explanation{}, r.countLate(err)
	}
	answer, ends, err := r.service.coord.LookupExplain(numTokens, hashes, lease)
	if err != nil {
		return api.Explanation{}, err
	}
	hit, err := r.service.newHit(answer)
	return api.NewExplanation(hit, ends), err
}

// exists makes one call of the backend for keys. memory is held until the call returns.
func (r *Remote) exists(ctx context.Context, keys []string, memory *keyBytes) (answers []int, err error) {
	call, err := r.beginRead(ctx)
	if err != nil {
		return nil, err
	}
	r.rounds.Add(1)
	r.keys.Add(int64(len(keys)))
	err = errPanicked // unless run returns
	defer func() { err = call.end(err) }()
	return r.reads.run(ctx, callExists, memory, func() ([]int, error) { return r.store.Exists(ctx, keys) })
}

// CountLookup counts a lookup of numTokens tokens that covers numHashes hashes.
func (r *Remote) CountLookup(numTokens int64, numHashes int, hit int64) {
	tokenLen, _ := r.service.coord.TokenLen(numTokens)
	tokens := min(tokenLen, int64(numHashes)*int64(r.service.pool.HashBlockSize))
	c := r.service.counters
	c.count(&c.stripes[0], hit, max(tokens-hit, 0)) // calls of the backend share more than this
}

// CountRejected counts a request that the backend is not asked for.
func (r *Remote) CountRejected() { r.rejected.Add(1) }

// CountTimeout counts a request whose time was up before the backend could be asked.
func (r *Remote) CountTimeout() { r.timeouts.Add(1) }

// countLate counts a request whose time was up before a call, and returns why.
func (r *Remote) countLate(why error) error {
	if errors.Is(why, context.DeadlineExceeded) {
		r.CountTimeout()
	}
	return why
}

// RemoteUsage is what the requests of a Remote hold now, for tests and debugging.
type RemoteUsage struct {
	HashBytes int64 // reserved
	Followers int   // lookups that wait for the answer to an equal one
}

// Usage returns what is held now.
func (r *Remote) Usage() RemoteUsage {
	return RemoteUsage{HashBytes: r.hashes.all.Load(), Followers: r.coalescer.numFollowers()}
}
