package lookup

import (
	"context"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
)

// Explain is Lookup with an answer for each group: where its part of the hit ends and
// why. It counts nothing and makes no block more recent. It fails if Lookup does, and if
// a backend fails.
func (s *Service) Explain(ctx context.Context, numTokens int64, hashes coordinator.Hashes) (api.Explanation, error) {
	if err := checkPrompt(numTokens, hashes); err != nil {
		return api.Explanation{}, err
	}
	if r := s.remote; r != nil {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
		defer cancel()
		return r.Explain(ctx, s.clampPrompt(numTokens), hashes)
	}
	q := s.NewQuery()
	defer q.Release()
	q.explain = true
	if err := q.addAll(numTokens, hashes); err != nil {
		return api.Explanation{}, err
	}
	return q.Explanation()
}

// explained is how far the explanation of a query is.
type explained struct {
	answered bool // hit is set
	hit      coordinator.Hit
	ends     []coordinator.GroupEnd // of the first groups
}

// Explanation ends a query that BeginExplain has begun.
func (q *Query) Explanation() (api.Explanation, error) {
	q.workLeft = &q.unlimited
	e, _, err := q.ExplainSome()
	return e, err
}

// ExplainSome is Explanation within the work that is left. If it returns false, the query is
// suspended, and the next call goes on.
func (q *Query) ExplainSome() (_ api.Explanation, done bool, err error) {
	e := &q.explained
	if !e.answered {
		if e.hit, done, err = q.answer(); err != nil || !done {
			return api.Explanation{}, done, err
		}
		e.answered = true
		if !q.active {
			q.presence.NumHashes = 0
		}
	}
	e.ends, done, err = q.service.coord.ExplainSome(&q.presence, &q.partly, q.numTokens, &q.scratch, e.ends, *q.workLeft)
	*q.workLeft -= q.scratch.Work()
	if err != nil || !done {
		return api.Explanation{}, done, err
	}
	q.setMissingRanks(e.ends)
	hit, err := q.service.newHit(e.hit)
	return api.NewExplanation(hit, e.ends), true, err
}
