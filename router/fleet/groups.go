package fleet

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

const (
	// maxGroups bounds the numbers of groups: models have a handful.
	maxGroups = 64
	// maxBlockSize bounds block sizes that are learned, in tokens: rules of larger ones take long to make, and the lock
	// is held.
	maxBlockSize = 1 << 20
)

// groupSpec is what is known of a KV cache group.
type groupSpec struct {
	Seen      bool  `json:"seen"`
	BlockSize int64 `json:"block_size,omitzero"` // tokens; 0: unknown, which counts as that of a hash
	// Single says that all blocks so far came alone: they may be parts of larger ones.
	Single bool   `json:"single,omitzero"`
	Kind   string `json:"kind,omitzero"`   // as events name it, "" if they do not
	Window int64  `json:"window,omitzero"` // tokens, 0 if unknown
}

// rules say how blocks of groups make a prefix, and for which holders. Fleet.mu guards holders and used; the rest is
// immutable.
type rules struct {
	holders bitmap // their numbers
	used    int    // how many of these some set may have

	groups  []coordinator.Group // from which the rules follow, nil for leading blocks
	numbers []int               // of the groups in events
	// coordinator is nil if there is one group of full attention whose blocks have one hash each: its leading blocks
	// are the prefix.
	coordinator *coordinator.Coordinator
	// storeGroups are the store groups by the group number of events, -1 for those that are in no lookup.
	storeGroups [maxGroups]int8
	// full is the first store group of full attention, -1 if there is none.
	full int
}

// statement is what some holders have said of their groups. Fleet.mu guards it.
type statement struct {
	specs   []groupSpec // by the group number of events
	rules   *rules
	holders bitmap // their numbers
}

// bytes estimates the memory of a statement and its rules high.
func (s *statement) bytes() int64 { return 4096 + int64(len(s.specs))*1024 }

// groupTable has the statements of holders. The first is of those that have said nothing, or of Config.Groups.
type groupTable struct {
	cfg        *Config
	statements []*statement
	rules      []*rules // of the statements, each once
}

func (t *groupTable) init(cfg *Config) {
	first := *cfg.described // with holders of its own
	t.cfg, t.rules, t.statements = cfg, []*rules{&first}, []*statement{{rules: &first}}
}

func (t *groupTable) bytes() (n int64) {
	for _, s := range t.statements[1:] {
		n += s.bytes()
	}
	return n
}

// none returns the statement of a holder that has said nothing.
func (t *groupTable) none() *statement { return t.statements[0] }

// makeRules returns the rules of groups, which have the numbers in events.
func makeRules(cfg *Config, groups []coordinator.Group, numbers []int) (*rules, error) {
	if len(groups) == 0 || len(groups) == 1 && groups[0].Kind.IsFull() && groups[0].BlockSize == cfg.BlockSize && !groups[0].IsEagleGroup {
		return &rules{}, nil
	}
	groups = slices.Clone(groups)
	for i := range groups {
		groups[i].EnableKVTransfer = nil // it is about a store; the engine itself looks at all groups
	}
	release := cfg.Release
	if release == "" {
		release = coordinator.NewestRelease()
	}
	c, err := coordinator.New(coordinator.Pool{HashBlockSize: cfg.BlockSize, VLLM: release, Groups: groups})
	if err != nil {
		return nil, err
	}
	r := &rules{groups: groups, numbers: numbers, coordinator: c, full: -1}
	for number := range r.storeGroups {
		r.storeGroups[number] = -1
	}
	for g := range c.NumGroups() {
		r.storeGroups[numbers[c.PoolIndex(g)]] = int8(g)
		if r.full < 0 && c.Group(g).Kind.IsFull() {
			r.full = g
		}
	}
	return r, nil
}

// learn checks the group of blocks that a holder stores, and learns what is new. It fails with ErrGroup or errNoMemory.
func (c *core) learn(h *Holder, b *events.Blocks) error {
	g, described := max(b.Group, 0), c.groups.cfg.Groups
	if g >= maxGroups || described != nil && g >= len(described) {
		return fmt.Errorf("%w: group %d, at most %d are possible", ErrGroup, g, cmp.Or(len(described), maxGroups))
	}
	var known, spec groupSpec
	var err error
	specs := c.numbers.list[h.number].stated.specs
	if described != nil {
		err = checkDescribed(b, &described[g])
	} else {
		if g < len(specs) {
			known = specs[g]
		}
		spec, err = known.merge(b, int64(c.groups.cfg.BlockSize))
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: group %d %w", ErrGroup, g, err)
	case spec == known:
		return nil // the usual case
	}
	specs = append(slices.Clone(specs), make([]groupSpec, max(0, g+1-len(specs)))...)
	specs[g] = spec
	return c.setSpecs(h, specs)
}

// setSpecs sets what a holder has said of its groups. It fails with ErrGroup if no rules follow from it, or with
// errNoMemory.
func (c *core) setSpecs(h *Holder, specs []groupSpec) error {
	t := &c.groups
	i := slices.IndexFunc(t.statements, func(s *statement) bool { return slices.Equal(s.specs, specs) })
	if i < 0 {
		t.dropForgotten()
		s := &statement{specs: specs}
		if !c.fits(s.bytes()) {
			return errNoMemory
		}
		var err error
		if s.rules, err = t.rulesOf(specs); err != nil {
			return fmt.Errorf("%w: %w", ErrGroup, err)
		}
		i, t.statements = len(t.statements), append(t.statements, s)
	}
	c.numbers.state(h.number, t.statements[i])
	return nil
}

// dropForgotten drops what no holder states any more, but none.
func (t *groupTable) dropForgotten() {
	isEmpty := func(holders bitmap) bool { return !slices.ContainsFunc(holders, func(w uint64) bool { return w != 0 }) }
	t.statements = slices.DeleteFunc(t.statements, func(s *statement) bool { return s != t.none() && isEmpty(s.holders) })
	t.rules = slices.DeleteFunc(t.rules, func(r *rules) bool { return r != t.none().rules && isEmpty(r.holders) })
}

// rulesOf returns the rules that follow from what is known of groups. Equal rules are one.
func (t *groupTable) rulesOf(specs []groupSpec) (*rules, error) {
	var groups []coordinator.Group
	var numbers []int
	for number := range specs {
		if specs[number].Seen {
			groups = append(groups, specs[number].group(t.cfg.BlockSize))
			numbers = append(numbers, number)
		}
	}
	r, err := makeRules(t.cfg, groups, numbers)
	if err != nil {
		return nil, err
	}
	for _, there := range t.rules {
		if slices.Equal(there.numbers, r.numbers) && slices.Equal(there.groups, r.groups) {
			return there, nil
		}
	}
	t.rules = append(t.rules, r)
	return r, nil
}

// tellsSize reports whether the block size of an event is that of its group: other media join blocks.
func tellsSize(b *events.Blocks) bool {
	return b.BlockSize > 0 && (b.Tier.Medium == "GPU" || b.Tier.Medium == "")
}

// merge returns what is known with what blocks tell of their group.
func (s groupSpec) merge(b *events.Blocks, hashSize int64) (groupSpec, error) {
	s.Seen = true
	if b.SpecKind != "" {
		if s.Kind != "" && s.Kind != b.SpecKind {
			return s, fmt.Errorf("is %.32q, but was %.32q", b.SpecKind, s.Kind)
		}
		s.Kind = b.SpecKind
	}
	if b.SlidingWindow > math.MaxInt32 {
		return s, fmt.Errorf("has a window of %d tokens, at most %d are possible", b.SlidingWindow, math.MaxInt32)
	}
	if b.SlidingWindow > 0 {
		if s.Window != 0 && s.Window != b.SlidingWindow {
			return s, fmt.Errorf("has a window of %d tokens, but had one of %d", b.SlidingWindow, s.Window)
		}
		s.Window = b.SlidingWindow
	}
	if !tellsSize(b) {
		return s, nil
	}
	err := s.mergeSize(b, hashSize)
	return s, err
}

// mergeSize adds a block size. A block that comes alone may be a part of a larger one.
func (s *groupSpec) mergeSize(b *events.Blocks, hashSize int64) error {
	isSingle := b.Hashes.Len() == 1
	switch size := b.BlockSize; {
	case size > maxBlockSize:
		return fmt.Errorf("has blocks of %d tokens, at most %d are possible", size, maxBlockSize)
	case isSingle && (size%hashSize != 0 || s.BlockSize != 0 && size < s.BlockSize):
	case size%hashSize != 0:
		return fmt.Errorf("has blocks of %d tokens, which is no multiple of %d; the model's block_size is %d, the engine's %d",
			size, hashSize, hashSize, size)
	case s.BlockSize == 0 || s.Single && size > s.BlockSize:
		s.BlockSize, s.Single = size, isSingle
	case s.BlockSize != size:
		return fmt.Errorf("has blocks of %d tokens, but had blocks of %d", size, s.BlockSize)
	default:
		s.Single = s.Single && isSingle
	}
	return nil
}

// group describes the group for the coordinator. Kinds whose parameters events do not tell count as full attention,
// whose prefixes are never too long. Mamba's hits end with a whole block: events do not tell whether others are possible.
func (s *groupSpec) group(hashSize int) coordinator.Group {
	g := coordinator.Group{Kind: coordinator.FullAttention, BlockSize: hashSize}
	if s.BlockSize > 0 {
		g.BlockSize = int(s.BlockSize)
	}
	switch {
	case s.Kind == "mla_attention":
		g.Kind = coordinator.MLAAttention
	case s.Kind == "mamba":
		g.Kind = coordinator.Mamba
	case s.Kind == "sliding_window" && s.Window > 0:
		g.Kind, g.SlidingWindow = coordinator.SlidingWindow, int(s.Window)
	case s.Kind == "sliding_window_mla" && s.Window > 0:
		g.Kind, g.SlidingWindow = coordinator.SlidingWindowMLA, int(s.Window)
	}
	return g
}

// checkDescribed refuses blocks of a group that is described otherwise. A block that comes alone may be a part.
func checkDescribed(b *events.Blocks, group *coordinator.Group) error {
	size := int64(group.BlockSize)
	switch {
	case !group.Kind.MayBeNamed(b.SpecKind):
		return fmt.Errorf("is %.32q, but described as %s", b.SpecKind, group.Kind)
	case group.Kind.IsWindow() && b.SlidingWindow > 0 && b.SlidingWindow != int64(group.SlidingWindow):
		return fmt.Errorf("has a window of %d tokens, but is described with one of %d", b.SlidingWindow, group.SlidingWindow)
	case tellsSize(b) && b.BlockSize != size && (b.BlockSize > size || b.Hashes.Len() > 1):
		return fmt.Errorf("has blocks of %d tokens, but is described with %d", b.BlockSize, size)
	}
	return nil
}
