package coordinator

import (
	"math"
	"slices"
	"sort"

	"github.com/hitline/hitline/internal/requesterror"
)

// Coordinator holds one pool's rules. It is immutable and safe for concurrent use. The
// working memory of a call is in its Scratch.
type Coordinator struct {
	pool        Pool // with defaults
	rules       rules
	fineGrained bool // fine-grained mode: hits are multiples of the hash block size

	// The terms of LookEnd, set by setLookEnd.
	lookahead   int64 // tokens
	blockLCM    int64 // tokens: chunks of all groups end at its multiples
	numEagle    int64 // number of eagle attention groups
	unequalFull bool  // full-attention groups have unequal block sizes

	align         int64            // common alignment of hits in tokens
	attention     []attentionGroup // full family first
	groups        []groupState     // by group number: the store groups
	allFull       bool             // all groups have full attention
	noBits        [][]uint64       // a bitset of each group, without a word
	namespace     string           // of keys, "" or beginning with @
	prefixes      []string         // of keys, those of all groups
	sectionHashes int              // the constant, but in tests
	numShards     int              // of a block in the store, 0 if ranks hold blocks of their own
}

// attentionGroup is the set of groups with one spec. A chunk of it is cached only if every
// member has it.
type attentionGroup struct {
	Group                    // the common spec; its IsEagleGroup and Uniform are those of the first member
	block          int64     // BlockSize, tokens
	stride         int       // hash blocks in a block
	chunkPositions int       // presence positions in a block: stride if fine-grained, otherwise 1
	eagle          bool      // some member is an eagle group
	members        []int     // group numbers
	before         *periodic // groupState.before of the members, in common
}

// groupState is what New computes for a store group.
type groupState struct {
	Group              // with a widened window
	poolGroup int      // its position in Pool.Groups
	self      [1]int   // its own number
	attention int      // index of its attention group
	eagle     bool     // the group itself is an eagle group, not only its attention group
	keyMask   Mask     // the chunks whose keys a lookup checks, without a length
	before    periodic // the positions that count as present if they lie before a lookup's start
	ranks     []Rank   // the ranks that must hold a block, in key order
	prefixes  []string // KeyPrefix of each rank
	prefixAt  int      // index of the first of them in Coordinator.prefixes
}

// New checks pool, fills in its defaults and returns its coordinator. Every error wraps
// ErrInvalidPool. Those that the reference's constructor raises too wrap ErrPrecondition
// as well.
func New(pool Pool) (*Coordinator, error) {
	pool = pool.withDefaults()
	if err := pool.validate(); err != nil {
		return nil, err
	}
	c := &Coordinator{
		pool:  pool,
		rules: pool.release().rules,
		align: int64(pool.SchedulerBlockSize),

		sectionHashes: sectionHashes,
	}
	if pool.Layout == LayoutLMDeploy {
		c.rules.floorsTokens = true
	}
	if pool.CapacityOnly { // whatever its groups are, they are not looked up
		pool.Groups = []Group{{Kind: FullAttention, BlockSize: pool.HashBlockSize}}
		c.align = int64(pool.HashBlockSize)
	}
	for _, g := range pool.storeGroups() {
		c.groups = append(c.groups, groupState{Group: c.widen(pool.Groups[g]), poolGroup: g, self: [1]int{len(c.groups)}})
	}
	if c.fineGrained = c.isFineGrained(); c.fineGrained {
		c.align = int64(pool.HashBlockSize)
	}
	c.setNamespace()
	c.markEagle()
	c.mergeSpecs()
	c.setLookEnd()
	c.noBits = make([][]uint64, len(c.groups))
	c.allFull = !slices.ContainsFunc(c.attention, func(a attentionGroup) bool { return !a.Kind.IsFull() })
	for g := range c.groups {
		state := &c.groups[g]
		state.keyMask = c.lookupPattern(g)
		if !pool.CapacityOnly {
			state.before = c.KeyMask(g).rule
		}
		state.ranks = c.requiredRanks(g)
		state.prefixes, state.prefixAt = c.keyPrefixes(g), len(c.prefixes)
		c.prefixes = append(c.prefixes, state.prefixes...)
	}
	for i := range c.attention {
		a := &c.attention[i]
		// Before 0.27.0 the masks of eagle members have more than those of others.
		plain := slices.IndexFunc(a.members, func(g int) bool { return !c.groups[g].eagle })
		a.before = &c.groups[a.members[max(0, plain)]].before
	}
	return c, nil
}

// widen returns g with the extra retained tokens in its window, if the release widens
// windows.
func (c *Coordinator) widen(g Group) Group {
	if c.rules.widensWindows {
		g.SlidingWindow += g.ExtraRetainedTokens
		g.ExtraRetainedTokens = 0
	}
	return g
}

// isFineGrained reports whether hits may end inside a block.
func (c *Coordinator) isFineGrained() bool {
	least := c.pool.HashBlockSize + 1 // block size of a mamba group that turns it on
	switch {
	case c.rules.fineGrained == fineGrainedNever || c.pool.CapacityOnly:
		return false
	case c.rules.fineGrained == fineGrainedConfigured:
		hits := c.pool.CacheHitAlignmentTokens
		return hits > 0 && hits < c.pool.SchedulerBlockSize
	case c.rules.fineGrained == fineGrainedDerivedDCP && c.pool.DCPSize > 1:
		least--
	}
	return slices.ContainsFunc(c.groups, func(g groupState) bool {
		return g.Kind == Mamba && g.MambaCacheMode == "align" && g.BlockSize >= least
	})
}

// markEagle marks the groups that drop their last block: the flagged ones, or all if the
// pool uses eagle and flags none.
func (c *Coordinator) markEagle() {
	flagged := slices.ContainsFunc(c.groups, func(g groupState) bool { return g.IsEagleGroup })
	for g := range c.groups {
		c.groups[g].eagle = c.groups[g].IsEagleGroup || c.pool.UseEagle && !flagged
	}
}

// mergeSpecs makes the attention groups in order of first appearance, then moves the
// full-attention family to the front. Hits and masks depend on the order.
func (c *Coordinator) mergeSpecs() {
	bySpec := map[Group]int{}
	for g := range c.groups {
		group := c.groups[g].Group
		spec := group.spec()
		a, ok := bySpec[spec]
		if !ok {
			a = len(c.attention)
			bySpec[spec] = a
			stride := group.BlockSize / c.pool.HashBlockSize
			chunkPositions := 1
			if c.fineGrained {
				chunkPositions = stride
			}
			c.attention = append(c.attention, attentionGroup{
				Group: group, block: int64(group.BlockSize), stride: stride, chunkPositions: chunkPositions,
			})
		}
		c.attention[a].members = append(c.attention[a].members, g)
		c.attention[a].eagle = c.attention[a].eagle || c.groups[g].eagle
	}
	slices.SortStableFunc(c.attention, func(a, b attentionGroup) int {
		switch {
		case a.Kind.IsFull() == b.Kind.IsFull():
			return 0
		case a.Kind.IsFull():
			return -1
		}
		return 1
	})
	for a := range c.attention {
		for _, g := range c.attention[a].members {
			c.groups[g].attention = a
		}
	}
}

// spec returns g with the fields cleared that do not belong to the spec.
func (g Group) spec() Group {
	g.IsEagleGroup, g.Uniform, g.EnableKVTransfer = false, false, nil
	if g.MambaCacheMode == "none" {
		g.MambaCacheMode = ""
	}
	return g
}

// Pool returns a copy of the configuration, with its defaults filled in. The caller owns
// the copy.
func (c *Coordinator) Pool() Pool { return c.pool.withDefaults() }

// NumGroups returns the number of store groups. They are numbered from 0, in the order of
// Pool.Groups without those that are not kept in the store: see Group.
func (c *Coordinator) NumGroups() int { return len(c.groups) }

// Alignment returns A, in tokens: the scheduler block size, or the hash block size in
// fine-grained mode. The length of a lookup (TokenLen) is a multiple of it.
func (c *Coordinator) Alignment() int64 { return c.align }

// FineGrained reports whether hits may end inside a block. From 0.27.0 on that
// is so with a mamba group in cache mode "align" whose block is larger than the hash block,
// from 0.32.0 on by Pool.CacheHitAlignmentTokens.
func (c *Coordinator) FineGrained() bool { return c.fineGrained }

// Stride returns k, the number of hash blocks in a block of group g. Chunk i of
// the group is keyed by raw hash KeyIndex(i, k).
func (c *Coordinator) Stride(g int) int { return c.groups[g].BlockSize / c.pool.HashBlockSize }

// PoolIndex returns the position of store group g in Pool.Groups.
func (c *Coordinator) PoolIndex(g int) int { return c.groups[g].poolGroup }

// StoreGroup returns the number of the store group at a position in Pool.Groups, -1 if that
// group is not kept in the store. It is the inverse of PoolIndex.
func (c *Coordinator) StoreGroup(position int) int {
	g := sort.Search(len(c.groups), func(g int) bool { return c.groups[g].poolGroup >= position })
	if g == len(c.groups) || c.groups[g].poolGroup != position {
		return -1
	}
	return g
}

// Group returns store group g as it takes part in lookups: its window includes what
// the release adds. The caller owns the copy.
func (c *Coordinator) Group(g int) Group { return c.groups[g].Group }

// KeyStride returns the number of hash blocks in a presence position of group
// g: Stride(g), or 1 in fine-grained mode, where a lookup checks every raw hash.
// Position i stands for raw hash KeyIndex(i, KeyStride(g)).
func (c *Coordinator) KeyStride(g int) int {
	if c.fineGrained {
		return 1
	}
	return c.Stride(g)
}

// AttentionGroup returns the number of the attention group that g belongs to.
// Groups of one number have equal specs and get equal masks from FindHit.
func (c *Coordinator) AttentionGroup(g int) int { return c.groups[g].attention }

// IsEagle reports whether the attention group of g drops its last block.
func (c *Coordinator) IsEagle(g int) bool { return c.attention[c.groups[g].attention].eagle }

// checkAligned fails unless tokens is a multiple of the alignment.
func (c *Coordinator) checkAligned(tokens int64) error {
	switch {
	case tokens%c.align == 0:
		return nil
	case tokens > math.MaxUint32: // callers lower what no prompt has, so it may not be what was sent
		return requesterror.New(ErrPrecondition, "num_tokens is no multiple of %d", c.align)
	default:
		return requesterror.New(ErrPrecondition, "num_tokens %d is no multiple of %d", tokens, c.align)
	}
}
