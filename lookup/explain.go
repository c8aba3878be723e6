package lookup

import (
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// Explain looks up like Lookup, without counting or touching anything, and tells
// for each group where its part of the hit ended. It fails where Lookup does, and
// when a backend fails.
func (s *Service) Explain(numTokens uint64, hashes netproto.Hashes) (api.Explanation, error) {
	if s.remote != nil {
		return s.remote.explainWaiting(numTokens, hashes)
	}
	q := s.NewQuery()
	defer q.Release()
	q.explain = true
	if err := q.run(numTokens, hashes); err != nil {
		return api.Explanation{}, err
	}
	return q.Explanation()
}

// Explanation ends a query that BeginExplain has begun.
func (q *Query) Explanation() (api.Explanation, error) {
	hit, err := q.answer()
	if err != nil {
		return api.Explanation{}, err
	}
	if !q.asked {
		q.presence.NumHashes = 0
	}
	ends, err := q.service.coord.Explain(&q.presence, &q.partly, q.numTokens)
	if err != nil {
		return api.Explanation{}, err
	}
	return newExplanation(fit32(hit, q.service.coord.Alignment()), ends), nil
}

func newExplanation(hit uint32, ends []coordinator.GroupEnd) api.Explanation {
	e := api.Explanation{HitTokens: hit}
	for _, end := range ends {
		g := api.GroupExplanation{Group: end.Group, Kind: end.Kind, EndTokens: end.EndTokens, Reason: end.Reason}
		if end.FirstMissing >= 0 {
			g.FirstMissingBlock = &end.FirstMissing
		}
		e.Groups = append(e.Groups, g)
	}
	return e
}
