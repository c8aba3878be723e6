package fleet

import (
	"math/bits"
	"slices"
)

// Groups are the KV cache groups of some engines, as their events tell them.
type Groups struct {
	Holders int     `json:"holders"` // that are not stale
	Groups  []Group `json:"groups"`
}

// Group is one KV cache group. What events have not told is left out.
type Group struct {
	Group     int    `json:"group"`
	Kind      string `json:"kind,omitzero"`
	Window    int64  `json:"sliding_window,omitzero"` // tokens
	BlockSize int64  `json:"block_size,omitzero"`     // tokens
	// CountsAs is another kind, whose prefixes are never too long: events do not tell what the group's own needs.
	CountsAs string `json:"counts_as,omitzero"`
}

// groups returns what is stated.
func (s *statement) groups() (list []Group) {
	for number, g := range s.specs {
		if g.Seen {
			list = append(list, Group{number, g.Kind, g.Window, g.BlockSize, g.countsAs()})
		}
	}
	return list
}

// numFresh returns how many holders that are not stale state s.
func (t *numberTable) numFresh(s *statement) (n int) {
	for w := range s.holders {
		n += bits.OnesCount64(s.holders[w] & t.fresh[w])
	}
	return n
}

// maxListed bounds the result of Fleet.Groups: an engine may name up to maxGroups of 256 bytes.
const maxListed = 16

// Groups returns the different groups of the holders that are not stale, those of the most holders first and then those
// that were named first, at most maxListed of them. There are none if Config.Groups describes them. The caller owns the
// result.
func (f *Fleet) Groups() []Groups {
	f.mu.RLock()
	defer f.mu.RUnlock()
	list := f.core.listGroups()
	return list[:min(len(list), maxListed)]
}

func (c *core) listGroups() (list []Groups) {
	for _, s := range c.groups.statements {
		n, groups := c.numbers.numFresh(s), s.groups()
		if n == 0 || groups == nil {
			continue
		}
		if i := slices.IndexFunc(list, func(g Groups) bool { return slices.Equal(g.Groups, groups) }); i >= 0 {
			list[i].Holders += n
		} else {
			list = append(list, Groups{n, groups})
		}
	}
	slices.SortStableFunc(list, func(a, b Groups) int { return b.Holders - a.Holders })
	return list
}
