package events

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// MaxGroupTiers bounds the pairs of a group and a tier of one engine: models have a handful of groups and engines a
// handful of tiers. A removal that names neither visits all of them.
const MaxGroupTiers = 256

const maxGroup = 65535 // largest group number

// ErrTiers refuses blocks of an engine that names too many groups and tiers, or too long ones.
var ErrTiers = errors.New("events: too many groups and tiers")

// GroupTier is a group and a tier: where a block is held.
type GroupTier struct {
	Group int // NoGroup: the engine did not say
	Tier  Tier
}

// Matches reports whether a removal from group and tier may mean blocks in g: what is absent on either side matches
// any. Removing too much is safe.
func (g *GroupTier) Matches(group int, tier *Tier) bool {
	return (group == NoGroup || g.Group == NoGroup || g.Group == group) && sameField(g.Tier.Medium, tier.Medium) &&
		sameField(g.Tier.Locality, tier.Locality) && sameField(g.Tier.Ownership, tier.Ownership)
}

func sameField(a, b string) bool { return a == "" || b == "" || a == b }

// GroupTiers numbers groups and tiers from 0. The zero value has none. Not safe for concurrent use.
type GroupTiers struct {
	Max     int // bound of their number; 0: MaxGroupTiers
	list    []GroupTier
	numbers map[GroupTier]uint32
	last    uint32 // the last that FindOrAdd returned: events of one group and tier follow each other
}

// Len returns how many there are.
func (t *GroupTiers) Len() int { return len(t.list) }

// At returns the group and tier of a number.
func (t *GroupTiers) At(number uint32) *GroupTier { return &t.list[number] }

// Find returns the number of a group and tier, or false if they have none.
func (t *GroupTiers) Find(group int, tier *Tier) (uint32, bool) {
	if len(t.list) == 0 {
		return 0, false
	}
	if last := &t.list[t.last]; last.Group == group && last.Tier == *tier {
		return t.last, true
	}
	number, ok := t.numbers[GroupTier{group, *tier}]
	return number, ok
}

// FindOrAdd returns the number of a group and tier. New ones get the next number. It fails with ErrTiers.
func (t *GroupTiers) FindOrAdd(group int, tier *Tier) (uint32, error) {
	if number, ok := t.Find(group, tier); ok {
		t.last = number
		return number, nil
	}
	limit := cmp.Or(t.Max, MaxGroupTiers)
	switch {
	case group < NoGroup || group > maxGroup:
		return 0, fmt.Errorf("%w: group %d, at most %d is possible", ErrTiers, group, maxGroup)
	case max(len(tier.Medium), len(tier.Locality), len(tier.Ownership)) > MaxName:
		return 0, fmt.Errorf("%w: tier %.32q has names of over %d bytes", ErrTiers, tier.Medium, MaxName)
	case len(t.list) >= limit:
		return 0, fmt.Errorf("%w: group %d, tier %.32q is one over %d", ErrTiers, group, tier.Medium, limit)
	}
	if t.numbers == nil {
		t.numbers = make(map[GroupTier]uint32)
	}
	t.last = uint32(len(t.list))
	t.list = append(t.list, GroupTier{group, *tier})
	t.numbers[t.list[t.last]] = t.last
	return t.last, nil
}

// appendMatching appends the numbers of all that a removal from group and tier may mean.
func (t *GroupTiers) appendMatching(dst []uint32, group int, tier *Tier) []uint32 {
	for i := range t.list {
		if t.list[i].Matches(group, tier) {
			dst = append(dst, uint32(i))
		}
	}
	return dst
}

// clone returns a copy that shares nothing that changes.
func (t *GroupTiers) clone() GroupTiers {
	return GroupTiers{Max: t.Max, list: slices.Clone(t.list), numbers: maps.Clone(t.numbers), last: t.last}
}
