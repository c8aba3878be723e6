package lookup

import (
	"context"

	"github.com/hitline/hitline/coordinator"
)

// ResetRank removes all that a group rank holds: a worker has died. coordinator.AnyRank in a field
// stands for every group or rank; in all fields it is Reset. What is stored to the rank
// meanwhile may go or stay. Over the memory index it ignores ctx, and fails with ErrGroupRank if
// the pool has no such rank. Over a backend it fails with ErrResetRank unless it is Reset.
func (s *Service) ResetRank(ctx context.Context, at coordinator.GroupRank) error {
	if at.IsAny() {
		return s.Reset(ctx)
	}
	if s.remote != nil {
		return ErrResetRank
	}
	places := s.ranks.matching(at)
	if len(places) == 0 {
		return s.ranks.refusal(at)
	}
	return s.memory.index.ResetPlaces(places)
}

// matching returns the places of the group ranks that at stands for.
func (p *groupRanks) matching(at coordinator.GroupRank) (places []int) {
	matches := func(field uint16, n int) bool { return field == coordinator.AnyRank || int(field) == n }
	for g, tpRanks := range p.tpRanks {
		for tp := range tpRanks {
			for pp := range p.pp {
				for pcp := range p.pcp {
					if matches(at.Group, g) && matches(at.TPRank, tp) && matches(at.PPRank, pp) && matches(at.PCPRank, pcp) {
						places = append(places, p.at(g, tp, pp, pcp))
					}
				}
			}
		}
	}
	return places
}
