package lookup

import (
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// Explanation answers why a lookup hit no more than it did.
type Explanation struct {
	HitTokens uint32             `json:"hit_tokens"`
	Groups    []GroupExplanation `json:"groups"`
}

// GroupExplanation tells where one group, asked alone, would have ended the hit,
// and why.
type GroupExplanation struct {
	Group     int                `json:"group"`
	Kind      coordinator.Kind   `json:"kind"`
	EndTokens int64              `json:"end_tokens"`
	Reason    coordinator.Reason `json:"reason"`
	// FirstMissingBlock is the first absent block among those that a hit of all
	// tokens would need of this group; nil if none is absent.
	FirstMissingBlock *int64 `json:"first_missing_block"`
}

// Explain looks up like Lookup, without counting or touching anything, and tells
// for each group where its part of the hit ended. It fails where Lookup does, and
// when a backend fails.
func (s *Service) Explain(numTokens uint64, hashes netproto.Hashes) (Explanation, error) {
	if s.remote != nil {
		return s.explainWaiting(numTokens, hashes)
	}
	q := s.queries.Get().(*query)
	defer q.release()
	q.explain = true
	if err := q.run(numTokens, hashes); err != nil {
		return Explanation{}, err
	}
	return q.explanation()
}

// explanation ends a query that was begun with explain set.
func (q *query) explanation() (Explanation, error) {
	hit, err := q.answer()
	if err != nil {
		return Explanation{}, err
	}
	if !q.asked {
		q.presence.NumHashes = 0
	}
	ends, err := q.service.coord.Explain(&q.presence, &q.partly, q.numTokens)
	if err != nil {
		return Explanation{}, err
	}
	return newExplanation(fit32(hit, q.service.coord.Alignment()), ends), nil
}

func newExplanation(hit uint32, ends []coordinator.GroupEnd) Explanation {
	e := Explanation{HitTokens: hit}
	for _, end := range ends {
		g := GroupExplanation{Group: end.Group, Kind: end.Kind, EndTokens: end.EndTokens, Reason: end.Reason}
		if end.FirstMissing >= 0 {
			g.FirstMissingBlock = &end.FirstMissing
		}
		e.Groups = append(e.Groups, g)
	}
	return e
}
