package lookup

import (
	"fmt"
	"strconv"

	"github.com/hitline/hitline/coordinator"
)

// groupRanks has the places of a pool's group ranks. A group can have fewer tensor ranks than
// another, so some places stand for no rank.
type groupRanks struct {
	tpRanks        []int // tensor ranks that hold different blocks, by group
	tpSize         int   // of the engine, for errors
	maxTP, pp, pcp int
}

func newGroupRanks(c *coordinator.Coordinator) groupRanks {
	pool := c.Pool()
	p := groupRanks{tpSize: pool.TPSize, pp: pool.PPSize, pcp: max(pool.PCPSize, pool.PCPRank+1)}
	for g := range c.NumGroups() {
		n := 0
		for _, r := range c.Ranks(g) {
			n = max(n, r.TP+1)
		}
		p.tpRanks = append(p.tpRanks, n)
		p.maxTP = max(p.maxTP, n)
	}
	return p
}

// count returns how many places there are.
func (p *groupRanks) count() int { return len(p.tpRanks) * p.perGroup() }

// place returns the place of a group rank. It fails with ErrGroupRank if the pool has
// no such group, or the group no such rank.
func (p *groupRanks) place(at coordinator.GroupRank) (int, error) {
	g := int(at.Group)
	if g >= len(p.tpRanks) || int(at.TPRank) >= p.tpRanks[g] || int(at.PPRank) >= p.pp || int(at.PCPRank) >= p.pcp {
		return 0, p.refusal(at)
	}
	return p.at(g, int(at.TPRank), int(at.PPRank), int(at.PCPRank)), nil
}

// at is place for a group rank that the pool has.
func (p *groupRanks) at(group, tp, pp, pcp int) int {
	return group*p.perGroup() + (tp*p.pp+pp)*p.pcp + pcp
}

// perGroup returns how many places a group has.
func (p *groupRanks) perGroup() int { return p.maxTP * p.pp * p.pcp }

// offset returns the place of a group rank less that of its group's first one.
func (p *groupRanks) offset(at coordinator.GroupRank) int {
	return p.at(0, int(at.TPRank), int(at.PPRank), int(at.PCPRank))
}

// groupRank returns the group rank of a place.
func (p *groupRanks) groupRank(place int) coordinator.GroupRank {
	return coordinator.GroupRank{
		Group: uint16(place / p.perGroup()), TPRank: uint16(place % p.perGroup() / (p.pp * p.pcp)),
		PPRank: uint16(place / p.pcp % p.pp), PCPRank: uint16(place % p.pcp),
	}
}

// refusal says what is wrong with a group rank, and which ones there are.
func (p *groupRanks) refusal(at coordinator.GroupRank) error {
	err := fmt.Errorf("%w: group %s, tp_rank %s, pp_rank %s, pcp_rank %s", ErrGroupRank,
		fieldText(at.Group), fieldText(at.TPRank), fieldText(at.PPRank), fieldText(at.PCPRank))
	if at.Group == coordinator.AnyRank {
		return fmt.Errorf("%w: no group has them", err)
	}
	if int(at.Group) >= len(p.tpRanks) {
		return fmt.Errorf("%w: the pool has group 0 to %d", err, len(p.tpRanks)-1)
	}
	ranks := p.tpRanks[at.Group]
	err = fmt.Errorf("%w: the group has tp_rank 0 to %d, pp_rank 0 to %d, pcp_rank 0 to %d", err, ranks-1, p.pp-1, p.pcp-1)
	if int(at.TPRank) < ranks || int(at.TPRank) >= p.tpSize {
		return err
	}
	if p.tpSize%ranks != 0 {
		return fmt.Errorf("%w: tp_rank is the KV shard that the engine's keys name", err)
	}
	return fmt.Errorf("%w: tp_rank is the KV shard, the engine's tensor rank divided by the %d ranks that hold equal blocks", err, p.tpSize/ranks)
}

// fieldText returns a field of a group rank as a refusal names it.
func fieldText(field uint16) string {
	if field == coordinator.AnyRank {
		return "any"
	}
	return strconv.Itoa(int(field))
}

// required lists, for each group, the places of the ranks that must hold a block for a lookup
// to find it. The decode-context rank is no part of a group rank: it follows from the
// tensor rank, or is the asking worker's own.
func (p *groupRanks) required(c *coordinator.Coordinator) [][]int {
	groups := make([][]int, len(p.tpRanks))
	for g := range groups {
		for _, r := range c.Ranks(g) {
			at := coordinator.GroupRank{Group: uint16(g), TPRank: uint16(r.TP), PPRank: uint16(r.PP), PCPRank: uint16(r.PCP)}
			if n, err := p.place(at); err == nil {
				groups[g] = append(groups[g], n)
			}
		}
	}
	return groups
}
