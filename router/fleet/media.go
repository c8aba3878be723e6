package fleet

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/router/events"
)

const (
	maxGroupTiers  = 4096 // of all holders of a fleet at a time; events.MaxGroupTiers is the bound of one
	maxHolderMedia = 16   // of one holder: none uses up the numbers of all
	maxMedia       = 254  // of all; their numbers have 8 bits: 0 is Predicted, and queries add one for all together
)

// tierTable numbers the groups and tiers where holders have stored, and their media. One that no holder uses any more
// loses its number to others: sets may have it then, but only with retired holders.
type tierTable struct {
	events.GroupTiers
	uses    []tierUse // by number
	version uint64    // counts the groups and tiers that got a number
	media   []string  // by number; 0 is Predicted
	order   []uint8   // where a medium is in sorted
	sorted  []string  // the names of the media in their order
}

// tierUse says who uses the number of a group and tier.
type tierUse struct {
	since   uint64 // version at which it got the number
	holders uint32 // how many use it; 0: the number is free
	medium  uint8
}

func newTierTable() tierTable {
	return tierTable{
		GroupTiers: events.GroupTiers{Max: maxGroupTiers},
		media:      []string{Predicted}, order: []uint8{0}, sorted: []string{Predicted},
	}
}

// bytes estimates a group and tier high, with the names.
func (t *tierTable) bytes() int64 { return int64(t.Len()) * 512 }

// take returns the number of a group and tier, which one more holder uses. It fails with events.ErrTiers.
func (t *tierTable) take(group int, tier *events.Tier) (uint32, error) {
	number, known := t.Find(group, tier)
	if !known {
		var err error
		if number, err = t.add(group, tier); err != nil {
			return 0, err
		}
	}
	t.uses[number].holders++
	return number, nil
}

// add gives a group and tier a number.
func (t *tierTable) add(group int, tier *events.Tier) (uint32, error) {
	number, err := t.FindOrAdd(group, tier)
	if err != nil {
		return 0, err
	}
	if int(number) == len(t.uses) {
		t.uses = append(t.uses, tierUse{})
	}
	medium, err := t.findOrAddMedium(tier.Medium)
	if err != nil {
		t.Free(number)
		return 0, err
	}
	t.version++
	t.uses[number] = tierUse{since: t.version, medium: medium}
	return number, nil
}

// release says that a holder does not use some numbers any more.
func (t *tierTable) release(numbers []uint32) {
	for _, number := range numbers {
		if t.uses[number].holders--; t.uses[number].holders == 0 {
			t.Free(number)
		}
	}
}

// findOrAddMedium returns the number of a medium. A new one gets the first that no group and tier uses.
func (t *tierTable) findOrAddMedium(name string) (uint8, error) {
	medium := slices.Index(t.media, name)
	switch {
	case medium > 0:
		return uint8(medium), nil
	case medium == 0:
		return 0, fmt.Errorf("%w: a medium cannot be named %q", events.ErrTiers, Predicted)
	}
	used := [maxMedia + 1]bool{true}
	for i := range t.uses {
		if use := &t.uses[i]; use.holders > 0 {
			used[use.medium] = true
		}
	}
	switch medium = slices.Index(used[:], false); {
	case medium < 0:
		return 0, fmt.Errorf("%w: medium %.32q is one over %d", events.ErrTiers, name, maxMedia)
	case medium == len(t.media):
		t.media = append(t.media, name)
	default:
		t.media[medium] = name
	}
	t.sortMedia()
	return uint8(medium), nil
}

// isOverMedia reports whether some groups and tiers have as many media as a holder may, and a further one is another.
func (t *tierTable) isOverMedia(numbers []uint32, medium string) bool {
	var seen [maxMedia + 1]bool
	n := 0
	for _, number := range numbers {
		if t.At(number).Tier.Medium == medium {
			return false
		}
		if at := t.uses[number].medium; !seen[at] {
			seen[at] = true
			n++
		}
	}
	return n >= maxHolderMedia
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
	return t.uses[p.groupTier].medium
}

// groupOf returns the group of a pair that is not predicted. Blocks without a group are in group 0.
func (t *tierTable) groupOf(p *pair) int { return max(0, t.At(p.groupTier).Group) }
