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
var ErrTiers = errors.New("too many groups and tiers")

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
	free    []uint32
	last    uint32 // the last that FindOrAdd returned, and 1: events of one group and tier follow each other; 0: none
}

// Len returns how many there are, with the free ones.
func (t *GroupTiers) Len() int { return len(t.list) }

// At returns the group and tier of a number.
func (t *GroupTiers) At(number uint32) *GroupTier { return &t.list[number] }

// Find returns the number of a group and tier, or false if they have none.
func (t *GroupTiers) Find(group int, tier *Tier) (uint32, bool) {
	if t.last > 0 {
		if last := &t.list[t.last-1]; last.Group == group && last.Tier == *tier {
			return t.last - 1, true
		}
	}
	number, ok := t.numbers[GroupTier{group, *tier}]
	return number, ok
}

// FindOrAdd returns the number of a group and tier. New ones get a free number, or the next. It fails with ErrTiers.
func (t *GroupTiers) FindOrAdd(group int, tier *Tier) (uint32, error) {
	if number, ok := t.Find(group, tier); ok {
		t.last = number + 1
		return number, nil
	}
	limit := cmp.Or(t.Max, MaxGroupTiers)
	switch {
	case group < NoGroup || group > maxGroup:
		return 0, fmt.Errorf("%w: group %d, at most %d is possible", ErrTiers, group, maxGroup)
	case max(len(tier.Medium), len(tier.Locality), len(tier.Ownership)) > MaxName:
		return 0, fmt.Errorf("%w: tier %.32q has names of over %d bytes", ErrTiers, tier.Medium, MaxName)
	case len(t.list) >= limit && len(t.free) == 0:
		return 0, fmt.Errorf("%w: group %d, tier %.32q is one over %d", ErrTiers, group, tier.Medium, limit)
	}
	if t.numbers == nil {
		t.numbers = make(map[GroupTier]uint32)
	}
	number, at := uint32(len(t.list)), GroupTier{group, *tier}
	if n := len(t.free); n > 0 {
		number, t.free = t.free[n-1], t.free[:n-1]
		t.list[number] = at
	} else {
		t.list = append(t.list, at)
	}
	t.numbers[at], t.last = number, number+1
	return number, nil
}

// Free frees a number, which a group and tier has. At returns what it was until another one gets it.
func (t *GroupTiers) Free(number uint32) {
	delete(t.numbers, t.list[number])
	t.free, t.last = append(t.free, number), 0
}

// appendMatching appends the numbers of all that a removal from group and tier may mean. None was freed.
func (t *GroupTiers) appendMatching(dst []uint32, group int, tier *Tier) []uint32 {
	for i := range t.list {
		if t.list[i].Matches(group, tier) {
			dst = append(dst, uint32(i))
		}
	}
	return dst
}

// hasOther reports whether there is a tier of another medium, none of which was freed.
func (t *GroupTiers) hasOther(medium string) bool {
	return slices.ContainsFunc(t.list, func(g GroupTier) bool { return g.Tier.Medium != medium })
}

// clone returns a copy that shares nothing that changes.
func (t *GroupTiers) clone() GroupTiers {
	return GroupTiers{
		Max: t.Max, list: slices.Clone(t.list), numbers: maps.Clone(t.numbers), free: slices.Clone(t.free), last: t.last,
	}
}
