package events

import (
	"errors"
	"fmt"
)

// Bounds of what one source may name. Models have a handful of groups and engines a handful of
// tiers; a removal that names no tier visits all places, so their number bounds its cost.
const (
	maxGroup  = 65535 // largest group number
	maxTiers  = 64
	maxPlaces = 1024 // pairs of a group and a tier
)

// ErrPlaces is the error of a source that names too many groups and tiers.
var ErrPlaces = errors.New("events: too many groups and tiers")

// A place is a group and a tier: where a block is held. A block is held once in each place.
type place struct {
	group int
	tier  Tier
}

// placeID numbers the places of one source, from 0.
type placeID uint16

// places numbers places. The zero value has none. Not safe for concurrent use.
type places struct {
	list  []place
	ids   map[place]placeID
	tiers map[Tier]struct{}
	last  placeID // the last that findOrAdd returned: events of one place follow each other
}

// find returns the number of a place, or false if it has none.
func (p *places) find(group int, tier *Tier) (placeID, bool) {
	if len(p.list) == 0 {
		return 0, false
	}
	if last := &p.list[p.last]; last.group == group && last.tier == *tier {
		return p.last, true
	}
	id, ok := p.ids[place{group, *tier}]
	return id, ok
}

// findOrAdd returns the number of a place. A new one gets the next number. findOrAdd fails with
// ErrPlaces if there are too many.
func (p *places) findOrAdd(group int, tier *Tier) (placeID, error) {
	id, ok := p.find(group, tier)
	if ok {
		p.last = id
		return id, nil
	}
	if group < NoGroup || group > maxGroup {
		return 0, fmt.Errorf("%w: group %d", ErrPlaces, group)
	}
	if _, known := p.tiers[*tier]; !known && len(p.tiers) == maxTiers {
		return 0, fmt.Errorf("%w: tier %.32q is one over %d", ErrPlaces, tier.Medium, maxTiers)
	}
	if len(p.list) == maxPlaces {
		return 0, fmt.Errorf("%w: over %d pairs", ErrPlaces, maxPlaces)
	}
	if p.ids == nil {
		p.ids, p.tiers = make(map[place]placeID), make(map[Tier]struct{})
	}
	id = placeID(len(p.list))
	p.list = append(p.list, place{group, *tier})
	p.ids[p.list[id]] = id
	p.tiers[*tier] = struct{}{}
	p.last = id
	return id, nil
}

// matching appends the places that a removal from group and tier may mean: what is absent on
// either side matches any. A removal that matches too much makes the source hold too little,
// which is the safe side.
func (p *places) matching(dst []placeID, group int, tier *Tier) []placeID {
	if len(p.list) == 1 && p.list[0].group == group && p.list[0].tier == *tier {
		return append(dst, 0) // the usual case
	}
	for i := range p.list {
		at := &p.list[i]
		if (group == NoGroup || at.group == NoGroup || at.group == group) && sameTier(&at.tier, tier) {
			dst = append(dst, placeID(i))
		}
	}
	return dst
}

// sameTier reports whether two tiers may be one.
func sameTier(a, b *Tier) bool {
	return sameField(a.Medium, b.Medium) && sameField(a.Locality, b.Locality) && sameField(a.Ownership, b.Ownership)
}

func sameField(a, b string) bool { return a == "" || b == "" || a == b }
