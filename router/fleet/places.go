package fleet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hitline/hitline/router/events"
)

// Bounds of what engines may name. Models have a handful of groups and engines a handful of tiers. A removal that
// names no tier visits all places of its holder, so their number bounds its cost.
const (
	maxPlaces       = 4096
	maxHolderPlaces = 256
	maxMedia        = 254 // numbers of media have 8 bits; 0 is Predicted, and queries add one for all together
	maxName         = 256 // bytes of the fields of a tier
	remote          = "REMOTE"
)

// ErrPlaces refuses blocks of a holder that names too many groups and tiers, or too long ones.
var ErrPlaces = errors.New("fleet: too many KV cache groups and tiers")

// place is a group and a tier: where a block is held.
type place struct {
	group int
	tier  events.Tier
}

// placeTable numbers places and media.
type placeTable struct {
	list   []place
	medium []uint8 // of a place
	ids    map[place]uint32
	media  []string // by number; 0 is Predicted
	order  []uint8  // where a medium is in sorted
	sorted []string // the names of the media in their order
}

func newPlaceTable() placeTable {
	return placeTable{ids: map[place]uint32{}, media: []string{Predicted}, order: []uint8{0}, sorted: []string{Predicted}}
}

// bytes estimates a place high, with the names.
func (t *placeTable) bytes() int64 { return int64(len(t.list)) * 512 }

// findOrAdd returns the number of a place. It fails with ErrPlaces.
func (t *placeTable) findOrAdd(at place) (uint32, error) {
	if num, ok := t.ids[at]; ok {
		return num, nil
	}
	if len(at.tier.Medium) > maxName || len(at.tier.Locality) > maxName || len(at.tier.Ownership) > maxName {
		return 0, fmt.Errorf("%w: tier %.32q has names of over %d bytes", ErrPlaces, at.tier.Medium, maxName)
	}
	if len(t.list) == maxPlaces {
		return 0, fmt.Errorf("%w: over %d", ErrPlaces, maxPlaces)
	}
	medium := slices.Index(t.media, at.tier.Medium)
	if at.tier.Medium == Predicted {
		return 0, fmt.Errorf("%w: a medium cannot be named %q", ErrPlaces, Predicted)
	}
	if medium < 0 {
		if medium = len(t.media); medium > maxMedia {
			return 0, fmt.Errorf("%w: medium %.32q is one over %d", ErrPlaces, at.tier.Medium, maxMedia)
		}
		t.media = append(t.media, at.tier.Medium)
		t.sortMedia()
	}
	num := uint32(len(t.list))
	t.list, t.medium = append(t.list, at), append(t.medium, uint8(medium))
	t.ids[at] = num
	return num, nil
}

// sortMedia orders the media by their names.
func (t *placeTable) sortMedia() {
	t.sorted = slices.Sorted(slices.Values(t.media))
	t.order = make([]uint8, len(t.media))
	for medium, name := range t.media {
		at, _ := slices.BinarySearch(t.sorted, name)
		t.order[medium] = uint8(at)
	}
}

// mediumOf returns the number of the medium of a pair.
func (t *placeTable) mediumOf(p *pair) uint8 {
	if p.place&predictedIn != 0 {
		return 0
	}
	return t.medium[p.place]
}

// sameTier reports whether two tiers may be one: a field that is absent on either side matches any.
func sameTier(a, b *events.Tier) bool {
	return sameField(a.Medium, b.Medium) && sameField(a.Locality, b.Locality) && sameField(a.Ownership, b.Ownership)
}

func sameField(a, b string) bool { return a == "" || b == "" || a == b }
