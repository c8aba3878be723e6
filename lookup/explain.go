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
	if err := s.checkPrompt(numTokens, hashes); err != nil {
		return api.Explanation{}, err
	}
	if r := s.remote; r != nil {
		ctx, cancel := withTimeout(ctx, r.shared.cfg.Timeout)
		defer cancel()
		return r.explain(ctx, s.clampPrompt(numTokens), hashes)
	}
	q := s.memory.NewQuery()
	defer q.Release()
	q.explain = true
	if err := q.addAll(numTokens, hashes); err != nil {
		return api.Explanation{}, err
	}
	return q.explanation()
}

// explanation ends a query that explains.
func (q *Query) explanation() (api.Explanation, error) {
	if q.presence.NumHashes = 0; q.active {
		q.endScans()
	}
	some := coordinator.Presence{Bits: q.presentOnSome, Start: q.presence.Start}
	answer, ends, err := q.memory.coord.Explain(&q.presence, &some, q.numTokens)
	if err != nil {
		return api.Explanation{}, err
	}
	q.setMissingRanks(ends)
	hit, err := q.memory.newHit(answer)
	e := api.NewExplanation(hit, ends)
	e.StartTokens, e.Ending = q.presence.Start, q.Ending(hit)
	return e, err
}
