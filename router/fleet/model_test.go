package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

// modelEntry is what a holder has of one hash.
type modelEntry struct {
	holder      *modelHolder
	tiers       []events.GroupTier
	isPredicted bool
	predicted   time.Time // when
}

// modelHolder is one holder.
type modelHolder struct {
	id      ID
	stale   bool
	medium  string              // that it alone has
	entries map[int]*modelEntry // by number of a hash
	groups  []coordinator.Group // of the engine
	seen    map[int]bool        // those of which it has stored a block since it was empty: true if one has told the size

	// present has a bit for each hash of a query that the holder has in a group and a medium; the last medium is all
	// together.
	present [maxModelGroups][]uint64
}

// maxModelGroups is how many groups a model has at most.
const maxModelGroups = 4

// model is a slow fleet.
type model struct {
	kind    oracleKind
	start   time.Time
	now     time.Time
	ttl     time.Duration
	holders map[ID]*modelHolder
	byHash  map[int][]*modelEntry
	rules   *coordinator.Coordinator // of a kind with hasRules
	// lastKnown says that what stale holders have counts in an answer.
	lastKnown bool
}

// entry returns what a holder has of a hash.
func (m *model) entry(h *modelHolder, hash int) *modelEntry {
	e := h.entries[hash]
	if e == nil {
		e = &modelEntry{holder: h}
		h.entries[hash] = e
		m.byHash[hash] = append(m.byHash[hash], e)
	}
	return e
}

func (m *model) clear(h *modelHolder) {
	for hash := range h.entries {
		m.byHash[hash] = slices.DeleteFunc(m.byHash[hash], func(e *modelEntry) bool { return e.holder == h })
	}
	h.entries, h.seen = map[int]*modelEntry{}, map[int]bool{}
}

func (m *model) remove(h *modelHolder, group int, tier events.Tier, hash int) {
	match := func(a, b string) bool { return a == "" || b == "" || a == b }
	e := m.entry(h, hash)
	e.isPredicted = false
	e.tiers = slices.DeleteFunc(e.tiers, func(at events.GroupTier) bool {
		groups := group == events.NoGroup || group == at.Group || at.Group == events.NoGroup
		return groups && match(at.Tier.Medium, tier.Medium) && match(at.Tier.Locality, tier.Locality) && match(at.Tier.Ownership, tier.Ownership)
	})
}

// counts reports whether a prediction counts now: in its quarter of the time to live and in the three that follow.
func (m *model) counts(e *modelEntry) bool {
	if !e.isPredicted {
		return false
	}
	quarter := m.ttl / 4
	begin := m.start.Add(e.predicted.Sub(m.start).Truncate(quarter))
	return m.now.Before(begin.Add(4 * quarter))
}

// fill sets the bits of a hash of a query, of which an entry tells, in its holder.
func (m *model) fill(e *modelEntry, at int) {
	h, all := e.holder, len(oracleMedia)
	if m.counts(e) {
		for g := range h.present {
			h.present[g][slices.Index(oracleMedia, Predicted)] |= 1 << at
			h.present[g][all] |= 1 << at
		}
	}
	if h.stale && !m.lastKnown {
		return
	}
	for _, g := range e.tiers {
		medium := g.Tier.Medium
		if medium == h.medium {
			medium = ownMedium
		}
		h.present[max(0, g.Group)][slices.Index(oracleMedia, medium)] |= 1 << at
		h.present[max(0, g.Group)][all] |= 1 << at
	}
}

// groupsOf returns the groups that count for a holder, by their number.
func (m *model) groupsOf(h *modelHolder) map[int]coordinator.Group {
	groups := map[int]coordinator.Group{}
	for number, g := range h.groups {
		sized, seen := h.seen[number]
		if !sized && !m.kind.isDescribed {
			g.BlockSize = oracleBlock
		}
		if seen || m.kind.isDescribed {
			groups[number] = g
		}
	}
	if len(groups) == 0 {
		groups[0] = full(oracleBlock) // for predictions
	}
	return groups
}

// prefix returns the longest length in tokens of a query of n hashes at which each group that counts has what it needs.
func (m *model) prefix(h *modelHolder, n, medium int) int64 {
	if m.rules != nil {
		return m.prefixByRules(h, n, medium)
	}
	groups := m.groupsOf(h)
	isWhole := func(n int) bool {
		for number, g := range groups {
			if !needsMet(h.present[number][medium], g, n) {
				return false
			}
		}
		return true
	}
	for ; n > 0 && !isWhole(n); n-- {
	}
	return int64(n * oracleBlock)
}

// prefixByRules returns what FindHit finds in the bits of a holder.
func (m *model) prefixByRules(h *modelHolder, n, medium int) int64 {
	p := coordinator.Presence{NumHashes: n, Bits: make([][]uint64, m.rules.NumGroups())}
	for g := range p.Bits {
		stride := m.rules.KeyStride(g)
		p.Bits[g] = []uint64{0}
		for i := range n / stride {
			p.Bits[g][0] |= h.present[m.rules.PoolIndex(g)][medium] >> (i*stride + stride - 1) & 1 << i
		}
	}
	length := int64(n * oracleBlock)
	tokens, err := m.rules.FindHit(&p, length-length%m.rules.Alignment(), true, &coordinator.Scratch{})
	if err != nil {
		panic(err)
	}
	return max(0, tokens) / oracleBlock * oracleBlock
}

// needsMet reports whether a group has what a prefix of n hashes needs, which is whole blocks: full attention all blocks
// in front of it, a window those that the next token looks at.
func needsMet(present uint64, g coordinator.Group, n int) bool {
	stride := g.BlockSize / oracleBlock
	blocks, first := n/stride, 0
	if !g.Kind.IsFull() {
		first = max(0, blocks-(g.SlidingWindow-1+g.BlockSize-1)/g.BlockSize)
	}
	for i := first; i < blocks; i++ {
		if present>>((i+1)*stride-1)&1 == 0 {
			return false
		}
	}
	return n%stride == 0
}

// answer returns what a query must find.
func (m *model) answer(hashes []int) []Prefix {
	for _, h := range m.holders {
		for g := range h.present {
			h.present[g] = append(h.present[g][:0], make([]uint64, len(oracleMedia)+1)...)
		}
	}
	for at, hash := range hashes {
		for _, e := range m.byHash[hash] {
			m.fill(e, at)
		}
	}
	var list []Prefix
	for _, h := range m.holders {
		p := Prefix{ID: h.id, Tokens: m.prefix(h, len(hashes), len(oracleMedia))}
		for i, medium := range oracleMedia {
			if medium == ownMedium {
				medium = h.medium
			}
			if n := m.prefix(h, len(hashes), i); n > 0 {
				p.Tokens = max(p.Tokens, n) // groups with lookahead may find more in one medium than in all
				p.Media = append(p.Media, MediumPrefix{medium, n})
			}
		}
		if p.Tokens > 0 {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b Prefix) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), compareIDs(a.ID, b.ID))
	})
	return list
}

// count returns how many blocks of a holder are stored, and how many are predicted.
func (m *model) count(h *modelHolder) (stored, predicted int) {
	for _, e := range h.entries {
		if stored += len(e.tiers); m.counts(e) {
			predicted++
		}
	}
	return stored, predicted
}

func (m *model) entries(h *modelHolder) int {
	stored, predicted := m.count(h)
	return stored + predicted
}

// isFull reports whether a holder with so many entries takes no further one.
func (m *model) isFull(entries int) bool { return m.kind.maxBlocks > 0 && entries >= m.kind.maxBlocks }
