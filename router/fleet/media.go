package fleet

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/router/events"
)

const (
	maxGroupTiers = 4096 // of all holders of a fleet; events.MaxGroupTiers is the bound of one
	maxNewMedia   = 16   // of one holder: none uses up the numbers of all
	maxMedia      = 254  // numbers of media have 8 bits; 0 is Predicted, and queries add one for all together
)

// tierTable numbers the groups and tiers of all holders, and their media.
type tierTable struct {
	events.GroupTiers
	medium []uint8  // of a group and tier
	media  []string // by number; 0 is Predicted
	order  []uint8  // where a medium is in sorted
	sorted []string // the names of the media in their order
}

func newTierTable() tierTable {
	return tierTable{GroupTiers: events.GroupTiers{Max: maxGroupTiers}, media: []string{Predicted}, order: []uint8{0}, sorted: []string{Predicted}}
}

// bytes estimates a group and tier high, with the names.
func (t *tierTable) bytes() int64 { return int64(t.Len()) * 512 }

// findOrAdd returns the number of a group and tier. It fails with events.ErrTiers.
func (t *tierTable) findOrAdd(group int, tier *events.Tier) (uint32, error) {
	if number, ok := t.Find(group, tier); ok {
		return number, nil
	}
	medium := slices.Index(t.media, tier.Medium)
	switch {
	case medium == 0:
		return 0, fmt.Errorf("fleet: %w: a medium cannot be named %q", events.ErrTiers, Predicted)
	case medium < 0 && len(t.media) > maxMedia:
		return 0, fmt.Errorf("fleet: %w: medium %.32q is one over %d", events.ErrTiers, tier.Medium, maxMedia)
	}
	number, err := t.FindOrAdd(group, tier)
	if err != nil {
		return 0, err
	}
	if medium < 0 {
		medium = len(t.media)
		t.media = append(t.media, tier.Medium)
		t.sortMedia()
	}
	t.medium = append(t.medium, uint8(medium))
	return number, nil
}

// sortMedia orders the media by their names.
func (t *tierTable) sortMedia() {
	t.sorted = slices.Sorted(slices.Values(t.media))
	t.order = make([]uint8, len(t.media))
	for medium, name := range t.media {
		at, _ := slices.BinarySearch(t.sorted, name)
		t.order[medium] = uint8(at)
	}
}

// mediumOf returns the number of the medium of a pair.
func (t *tierTable) mediumOf(p *pair) uint8 {
	if p.groupTier&predictedIn != 0 {
		return 0
	}
	return t.medium[p.groupTier]
}

// groupOf returns the group of a pair that is not predicted. Blocks without a group are in group 0.
func (t *tierTable) groupOf(p *pair) int { return max(0, t.At(p.groupTier).Group) }
