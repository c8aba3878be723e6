package lookup

import (
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/netproto"
)

// Place is a group on one rank, as on the wire.
type Place = netproto.Place

// places numbers the places of a pool for the index.
type places struct {
	groups, tp, pp, pcp int
}

func newPlaces(pool coordinator.Pool) places {
	return places{groups: len(pool.Groups), tp: pool.TPSize, pp: pool.PPSize, pcp: max(pool.PCPSize, pool.PCPRank+1)}
}

// count returns how many places the pool has.
func (p places) count() int { return p.groups * p.tp * p.pp * p.pcp }

// number returns the index's number of a place, and false when it is outside the
// pool.
func (p places) number(at Place) (int, bool) {
	if int(at.Group) >= p.groups || int(at.TPRank) >= p.tp || int(at.PPRank) >= p.pp || int(at.PCPRank) >= p.pcp {
		return 0, false
	}
	return ((int(at.Group)*p.tp+int(at.TPRank))*p.pp+int(at.PPRank))*p.pcp + int(at.PCPRank), true
}

// required lists, for each group, the places that must hold a block for a lookup
// to find it. The decode-context rank is no part of a place: it follows from the
// tensor rank, or is the asking worker's own.
func (p places) required(c *coordinator.Coordinator) [][]int {
	groups := make([][]int, p.groups)
	for g := range groups {
		for _, r := range c.Ranks(g) {
			at := Place{Group: uint16(g), TPRank: uint16(r.TP), PPRank: uint16(r.PP), PCPRank: uint16(r.PCP)}
			if n, ok := p.number(at); ok {
				groups[g] = append(groups[g], n)
			}
		}
	}
	return groups
}
