package fleet

import (
	"fmt"
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

func (g Group) String() string {
	text := "of an unknown kind"
	if g.Kind != "" {
		text = fmt.Sprintf("%.32q", g.Kind)
	}
	if g.Window > 0 {
		text += fmt.Sprintf(" with a window of %d tokens", g.Window)
	}
	if g.BlockSize > 0 {
		text += fmt.Sprintf(" in blocks of %d", g.BlockSize)
	}
	return text
}

// groups returns what is stated.
func (s *statement) groups() (list []Group) {
	for number, g := range s.specs {
		if g.seen {
			list = append(list, Group{number, g.kind, g.window, g.blockSize, g.countsAs()})
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

// Report implements events.Holder. Its error says that the engine's groups differ from the first of Groups, or if they are
// the first, from those that were the first before; or that a group counts as another kind. It is found anew once what some holder states has changed.
func (h *Holder) Report() (dropped int64, err error) {
	f, isCurrent := h.fleet, false
	f.readLocked(func() {
		isCurrent, dropped, err = h.closed || h.compared == f.core.groups.version, h.dropped, h.differs
	})
	if !isCurrent {
		f.locked(func() {
			if !h.closed {
				h.compared, h.differs = f.core.groups.version, f.core.compare(h)
			}
			dropped, err = h.dropped, h.differs
		})
	}
	return dropped, err
}

// compare returns the error of Report.
func (c *core) compare(h *Holder) error {
	groups, list := c.numbers.list[h.number].stated.groups(), c.listGroups()
	if len(list) == 0 {
		return nil
	}
	if text := differenceOf(groups, list[0].Groups, true); text != "" {
		return fmt.Errorf("fleet: the engine's groups are not those of others of its model (%d): %s; what it holds counts by its own",
			list[0].Holders, text)
	}
	before := c.groups.last
	c.groups.last = list[0].Groups
	if text := differenceOf(groups, before, false); text != "" {
		return fmt.Errorf("fleet: the groups of the model have changed: %s", text)
	}
	return c.undescribed(h, groups)
}

// undescribed returns an error about a group whose kind cannot be followed. One holder is told.
func (c *core) undescribed(h *Holder, groups []Group) error {
	i := slices.IndexFunc(groups, func(g Group) bool { return g.CountsAs != "" })
	if i < 0 || c.groups.told != nil && c.groups.told != h {
		return nil
	}
	c.groups.told = h
	return fmt.Errorf("fleet: group %d is %.32q, whose parameters events do not tell: configure groups of the model; until then it counts as %s, for less than the engine has",
		groups[i].Group, groups[i].Kind, groups[i].CountsAs)
}

// differenceOf says in what some groups differ from others, "" if in nothing. Those that only the others have do not
// count: an engine may not have named all of its groups yet.
func differenceOf(groups, others []Group, extraCount bool) string {
	isOther := func(a, b int64) bool { return a != 0 && b != 0 && a != b }
	for _, g := range groups {
		i := slices.IndexFunc(others, func(o Group) bool { return o.Group == g.Group })
		if i < 0 && extraCount {
			return fmt.Sprintf("group %d, %v, is only here", g.Group, g)
		}
		if i < 0 {
			continue
		}
		o := others[i]
		if g.Kind != "" && o.Kind != "" && g.Kind != o.Kind || isOther(g.Window, o.Window) || isOther(g.BlockSize, o.BlockSize) {
			return fmt.Sprintf("group %d is %v here, and %v there", g.Group, g, o)
		}
	}
	return ""
}
