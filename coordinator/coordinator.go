package coordinator

import (
	"fmt"
	"slices"
)

// Coordinator answers for one pool. It is immutable and safe for concurrent
// use; what a call needs to remember is in its Scratch.
type Coordinator struct {
	pool  Pool // with defaults
	rules rules
	fine  bool // fine-grained mode: hits are multiples of the hash block size

	// For LookEnd, set by setLookEnd.
	lookahead   int64 // tokens
	allChunks   int64 // tokens: multiples of it are where chunks of all groups end
	eagleGroups int64 // attention groups that are eagle groups
	unequalFull bool  // full-attention groups have blocks of unequal sizes

	align     int64            // common alignment of hits in tokens
	attention []attentionGroup // full family first
	groups    []groupState     // by group number
}

// attentionGroup is a set of groups with equal specs. They are found as one: a
// chunk counts only if every member has it.
type attentionGroup struct {
	Group         // the common spec; its eagle flag and Uniform mean nothing here
	block   int64 // BlockSize
	stride  int   // hash blocks in a block
	step    int   // presence positions in a block: stride in fine-grained mode, otherwise 1
	eagle   bool  // some member is an eagle group
	members []int // group numbers
}

// groupState is what is worked out once for each group.
type groupState struct {
	attention int    // index of its attention group
	eagle     bool   // eagle group for finding itself, not through its attention group
	asked     Mask   // which chunks a lookup asks, without a length
	ranks     []Rank // where a block must be stored, in the order of the keys
	prefixes  []string
}

// New checks pool, fills in its defaults and prepares a coordinator. Every
// error wraps ErrInvalidPool; those that the reference raises too (when its
// coordinator is constructed) wrap ErrPrecondition as well.
func New(pool Pool) (*Coordinator, error) {
	pool = pool.withDefaults()
	if err := pool.validate(); err != nil {
		return nil, err
	}
	c := &Coordinator{
		pool:   pool,
		rules:  revisionRules[pool.Revision],
		align:  int64(pool.SchedulerBlockSize),
		groups: make([]groupState, len(pool.Groups)),
	}
	c.fine = c.rules.fineGrained && slices.ContainsFunc(pool.Groups, func(g Group) bool {
		return g.Kind == Mamba && g.MambaCacheMode == "align" && g.BlockSize > pool.HashBlockSize
	})
	if c.fine {
		c.align = int64(pool.HashBlockSize)
	}
	c.markEagle()
	c.mergeSpecs()
	c.setLookEnd()
	for g := range c.groups {
		state := &c.groups[g]
		state.asked = c.askedPattern(g)
		state.ranks = c.requiredRanks(g)
		state.prefixes = c.keyPrefixes(g)
	}
	return c, nil
}

// markEagle decides which groups drop their last block: the flagged ones, or
// all if the pool uses eagle and flags none.
func (c *Coordinator) markEagle() {
	flagged := slices.ContainsFunc(c.pool.Groups, func(g Group) bool { return g.IsEagleGroup })
	for g := range c.groups {
		c.groups[g].eagle = c.pool.Groups[g].IsEagleGroup || c.pool.UseEagle && !flagged
	}
}

// mergeSpecs builds the attention groups in order of first appearance, then
// moves the full family to the front. The order is visible in the answers.
func (c *Coordinator) mergeSpecs() {
	bySpec := map[Group]int{}
	for g, group := range c.pool.Groups {
		spec := group.spec()
		a, ok := bySpec[spec]
		if !ok {
			a = len(c.attention)
			bySpec[spec] = a
			stride := group.BlockSize / c.pool.HashBlockSize
			step := 1
			if c.fine {
				step = stride
			}
			c.attention = append(c.attention, attentionGroup{
				Group: group, block: int64(group.BlockSize), stride: stride, step: step,
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

// spec returns g reduced to what makes two specs equal.
func (g Group) spec() Group {
	g.IsEagleGroup, g.Uniform = false, false
	if g.MambaCacheMode == "none" {
		g.MambaCacheMode = ""
	}
	return g
}

// Pool returns the configuration with its defaults filled in. The caller owns
// the copy.
func (c *Coordinator) Pool() Pool { return c.pool.withDefaults() }

// NumGroups returns the number of groups, which are numbered from 0.
func (c *Coordinator) NumGroups() int { return len(c.groups) }

// Alignment returns A, the tokens that lookups are aligned to: the scheduler
// block size, or the hash block size in fine-grained mode.
func (c *Coordinator) Alignment() int64 { return c.align }

// FineGrained tells whether hits may end inside a block (revision 2026-08-17
// with a mamba group in cache mode "align" whose block is larger than the hash
// block).
func (c *Coordinator) FineGrained() bool { return c.fine }

// Stride returns k, the number of hash blocks in a block of group g. Chunk i of
// the group is keyed by raw hash i*k + k - 1.
func (c *Coordinator) Stride(g int) int { return c.pool.Groups[g].BlockSize / c.pool.HashBlockSize }

// KeyStride returns the number of hash blocks in a presence position of group
// g: Stride(g), but 1 in fine-grained mode, where every raw hash is asked.
// Position i stands for raw hash i*KeyStride + KeyStride - 1.
func (c *Coordinator) KeyStride(g int) int {
	if c.fine {
		return 1
	}
	return c.Stride(g)
}

// AttentionGroup returns the number of the attention group that g belongs to.
// Groups of equal number have equal specs and always get equal masks from
// FindHit.
func (c *Coordinator) AttentionGroup(g int) int { return c.groups[g].attention }

// IsEagle tells whether the attention group of g drops its last block.
func (c *Coordinator) IsEagle(g int) bool { return c.attention[c.groups[g].attention].eagle }

// checkAligned refuses a number of tokens that is no multiple of the alignment.
func (c *Coordinator) checkAligned(tokens int64) error {
	if tokens%c.align != 0 {
		return fmt.Errorf("%w: token length %d is not a multiple of %d", ErrPrecondition, tokens, c.align)
	}
	return nil
}
