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
			list = append(list, Group{number, g.kind, g.window, g.blockSize})
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

// Groups returns the different groups of the holders that are not stale, those of the most holders first, at most
// maxListed of them. There are none if Config.Groups describes them. The caller owns the result.
func (f *Fleet) Groups() (list []Groups) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	c := f.core
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
	return list[:min(len(list), maxListed)]
}

// Report implements events.Holder. Its error says that the engine has other groups than more of the engines that are not
// stale, or, if there are no others, than the one before it had. It is found anew once what some holder states has
// changed.
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
	t, mine := &c.groups, c.numbers.list[h.number].stated
	groups := mine.groups()
	if groups == nil {
		return nil
	}
	before := t.last
	t.last.groups, t.last.holder = groups, h
	equal, others, difference := 0, 0, ""
	for _, s := range t.statements[1:] {
		n := c.numbers.numFresh(s)
		if s == mine && c.numbers.fresh.has(h.number) {
			n--
		}
		if text := differenceOf(groups, s.groups()); text == "" {
			equal = max(equal, n)
		} else if n > others {
			others, difference = n, text
		}
	}
	switch {
	case others > equal:
		return fmt.Errorf("fleet: the engine's groups are not those of most others of its model (%d): %s; what it holds counts by its own", others, difference)
	case equal > 0 || before.holder == h || before.groups == nil:
		return nil
	}
	if text := differenceOf(groups, before.groups); text != "" {
		return fmt.Errorf("fleet: the groups of the model are not those of before: %s", text)
	}
	return nil
}

// differenceOf says in what some groups differ from others, "" if in nothing. Those of an engine that has not named all of
// them yet do not.
func differenceOf(groups, others []Group) string {
	isOther := func(a, b int64) bool { return a != 0 && b != 0 && a != b }
	for _, g := range groups {
		i := slices.IndexFunc(others, func(o Group) bool { return o.Group == g.Group })
		if i < 0 {
			return fmt.Sprintf("group %d, %v, is only here", g.Group, g)
		}
		o := others[i]
		if g.Kind != "" && o.Kind != "" && g.Kind != o.Kind || isOther(g.Window, o.Window) || isOther(g.BlockSize, o.BlockSize) {
			return fmt.Sprintf("group %d is %v here, and %v there", g.Group, g, o)
		}
	}
	return ""
}
