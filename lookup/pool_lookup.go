package lookup

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// lookup returns the hit of numTokens tokens over the backend. A failing backend is a hit of 0 and no error, as in the reference.
// It fails where the rules do, and with ErrTooManyKeys.
//
// One context is derived for it, in lookupCoalesced, since others may need its calls when ctx has ended. The calls
// of the backend get that context.
func (p *PoolBackend) lookup(ctx context.Context, numTokens int64, hashes coordinator.Hashes, o LookupOptions) (Answer, error) {
	if o.Deadline.IsZero() {
		o.Deadline = time.Now().Add(p.shared.cfg.Timeout)
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(o.Deadline) {
		o.Deadline = deadline
	}
	return p.end(ctx, p.lookupCoalesced(ctx, numTokens, hashes, o))
}

// end counts a lookup with its outcome, and returns the answer.
func (p *PoolBackend) end(ctx context.Context, o outcome) (Answer, error) {
	if o.err != nil {
		return Answer{}, o.err
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		p.lookups.count(&p.lookups.stripes[0]) // calls of the backend share more than this
	}
	hit, err := p.newHit(o.hit)
	if err != nil {
		return Answer{}, err
	}
	hit.TailBoundaries = slices.Clone(hit.TailBoundaries) // others may share the outcome
	return Answer{Hit: hit, Ending: o.ending}, nil
}

// lookupCoalesced shares the outcome of an equal lookup in flight, or asks the backend.
func (p *PoolBackend) lookupCoalesced(ctx context.Context, numTokens int64, hashes coordinator.Hashes, o LookupOptions) outcome {
	key := newCoalesceKey(p.sharingEpoch(), numTokens, hashes, o.mode)
	leader, shared := p.coalescer.join(ctx, o.Deadline, key, hashes)
	if shared != nil {
		return *shared
	}
	if leader == nil {
		ctx, cancel := context.WithDeadline(ctx, o.Deadline)
		defer cancel()
		return p.ask(ctx, numTokens, hashes, o)
	}
	defer p.coalescer.finish(leader)
	leader.outcome.incomplete = true // if it panics, followers ask themselves
	leader.outcome = p.ask(leader.ctx, numTokens, hashes, o)
	return leader.outcome
}

// ask asks the backend.
func (p *PoolBackend) ask(ctx context.Context, numTokens int64, hashes coordinator.Hashes, o LookupOptions) (result outcome) {
	l := p.newLookup(ctx, o.mode, min(o.Expected, p.maxExpected(hashes.HashLen())))
	defer l.end()
	result.hit, result.ending, result.err = p.coord.LookupEnding(numTokens, hashes, l)
	if l.refused != nil {
		result.err = l.refused
	}
	result.incomplete = l.incomplete
	l.countRemembered()
	return result
}

// LookupRemembered is Lookup if every block that matters was found a moment ago. It makes no call, and takes
// some 150 microseconds at most: an event loop may call it. It returns false if Lookup would call the
// backend, take longer or fail.
func (p *PoolBackend) LookupRemembered(numTokens int64, hashes coordinator.Hashes) (Answer, bool) {
	if p == nil || p.checkPrompt(numTokens, hashes) != nil {
		return Answer{}, false
	}
	l := &remoteLookup{pool: p, mode: modeRemembered, rememberFor: p.shared.memory.rememberFor(), left: maxRememberedBlocks}
	if l.rememberFor == 0 || hashes.Len() > maxRememberedHashes || p.coord.NumBlocks(hashes) > maxRememberedBlocks {
		return Answer{}, false
	}
	hit, ending, err := p.coord.LookupEnding(p.clampPrompt(numTokens), hashes, l)
	if err != nil || l.refused != nil {
		return Answer{}, false
	}
	l.countRemembered()
	answer, err := p.end(context.Background(), outcome{hit: hit, ending: ending})
	return answer, err == nil
}

// explain returns the explanation of a lookup over the backend. It fails when the backend
// does.
func (p *PoolBackend) explain(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Explanation, error) {
	l := p.newLookup(ctx, modePeek, 0)
	defer l.end()
	if err := ctx.Err(); err != nil { // no call can be made, so build no keys
		return api.Explanation{}, p.shared.countLate(&p.requests, err, callExists)
	}
	answer, ends, ending, err := p.coord.LookupExplain(numTokens, hashes, l)
	if err != nil {
		return api.Explanation{}, err
	}
	hit, err := p.newHit(answer)
	e := api.NewExplanation(hit, ends)
	e.StartTokens, e.Ending = hashes.Start(), ending
	return e, err
}
