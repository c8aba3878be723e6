package coordinator

import (
	"math"

	"github.com/hitline/hitline/internal/requesterror"
)

// NoPrompt is the promptTokens of StoreMask for an unknown prompt.
const NoPrompt = -1

// StoreMask returns, for each element of Pool.Groups, which chunks of the first alignedLen tokens are worth
// storing. (Reference: the coordinator's store_mask.)
//
// Entry 0 is the first chunk that begins at or after startToken; a negative one counts as
// 0. Every mask has an entry for each whole chunk from there to alignedLen. The pool's
// retention interval thins the masks out. promptTokens, unless it is NoPrompt, then keeps
// the chunks that a replay of that prompt needs. A group whose chunks are all worth storing
// gets the all-true sentinel.
//
// It fails with ErrPrecondition if alignedLen is not a multiple of Alignment, or if startToken
// is not 0 before 0.25.0. Before 0.25.0 it also fails if alignedLen is negative and some mask
// is not the sentinel.
func (c *Coordinator) StoreMask(alignedLen, startToken, promptTokens int64) ([]Mask, error) {
	if err := c.checkAligned(alignedLen); err != nil {
		return nil, err
	}
	if startToken != 0 && !c.rules.startToken {
		return nil, requesterror.New(ErrPrecondition, "start_token is %d, want 0: vLLM before 0.25.0 has no other", startToken)
	}
	masks := c.droppedMasks(c.pool.RetentionInterval, promptTokens)
	for g := range c.groups {
		masks[c.groups[g].poolGroup] = c.storePattern(g, promptTokens)
	}
	return masks, c.boundMasks(masks, alignedLen, startToken)
}

// droppedMasks returns a mask for each element of Pool.Groups, as if none were kept in the store.
func (c *Coordinator) droppedMasks(interval *int, promptTokens int64) []Mask {
	masks := make([]Mask, len(c.pool.Groups))
	for i := range masks {
		masks[i] = c.droppedPattern(i, interval, promptTokens)
	}
	return masks
}

// boundMasks bounds masks without a length to the whole chunks from startToken to
// alignedLen.
func (c *Coordinator) boundMasks(masks []Mask, alignedLen, startToken int64) error {
	for g := range masks {
		m, block := &masks[g], int64(c.pool.Groups[g].BlockSize)
		if alignedLen < 0 && !m.all && !c.rules.startToken {
			return requesterror.New(ErrPrecondition, "num_tokens is %d, want 0 or more", alignedLen)
		}
		end := max(0, alignedLen/block)
		m.origin = min(end, ceilDiv(max(0, startToken), block))
		m.n = end - m.origin
	}
	return nil
}

// WithRetentionInterval returns the same rules with another retention interval, in tokens, nil
// for none. Only StoreMask and StoredChunks depend on it. It fails with ErrInvalidPool for an
// interval that New refuses.
func (c *Coordinator) WithRetentionInterval(interval *int) (*Coordinator, error) {
	other := *c
	other.pool.RetentionInterval = interval
	if err := other.pool.validateRetention(); err != nil {
		return nil, err
	}
	return &other, nil
}

// LookupMask returns, for each element of Pool.Groups, which chunks of the first alignedLen tokens a lookup
// checks: those that StoreMask keeps without a retention interval. alignedLen is as for
// StoreMask. (Reference: the coordinator's lookup_mask.)
func (c *Coordinator) LookupMask(alignedLen int64) ([]Mask, error) {
	if err := c.checkAligned(alignedLen); err != nil {
		return nil, err
	}
	masks := c.droppedMasks(nil, NoPrompt)
	for g := range c.groups {
		masks[c.groups[g].poolGroup] = c.groups[g].keyMask
	}
	return masks, c.boundMasks(masks, alignedLen, 0)
}

// KeyMask returns the positions of group g whose keys a lookup checks, as the rule of
// LookupMask with math.MaxInt64 entries. In fine-grained mode, where a lookup checks all
// positions, it is the sentinel. It allocates nothing.
func (c *Coordinator) KeyMask(g int) Mask {
	if c.fineGrained {
		return allMask
	}
	return c.groups[g].keyMask
}

// LoadMask returns, for each element of Pool.Groups, which chunks a request with numHashes hashes must load
// to be served its first tokenLen tokens. These are a hit, so eagle groups do not drop a
// block again. No mask is the sentinel. The errors, and a negative tokenLen, are as for
// FindHit. (Reference: the coordinator's load_mask.)
func (c *Coordinator) LoadMask(tokenLen int64, numHashes int) ([]Mask, error) {
	p, s := Presence{NumHashes: numHashes, Everything: true}, new(Scratch)
	if _, err := c.FindHit(&p, tokenLen, false, s); err != nil {
		return nil, err
	}
	masks := c.EmptyMasks() // of dropped groups: empty
	for g := range c.groups {
		masks[c.groups[g].poolGroup] = s.Mask(g)
	}
	return masks, nil
}

// EmptyMasks returns an empty mask for each element of Pool.Groups: the load masks of no tokens.
func (c *Coordinator) EmptyMasks() []Mask { return make([]Mask, len(c.pool.Groups)) }

// lookupPattern returns the lookup mask of group g without an end.
func (c *Coordinator) lookupPattern(g int) Mask {
	m := c.reachablePattern(g, nil, NoPrompt)
	if !m.all {
		m.n = math.MaxInt64
	}
	return m
}

// storePattern returns which chunks of group g are worth storing, as a mask without a
// length.
func (c *Coordinator) storePattern(g int, promptTokens int64) Mask {
	if c.groups[g].Kind == Mamba && c.rules.mambaStore == mambaStoreNone {
		return Mask{}
	}
	return c.reachablePattern(g, c.pool.RetentionInterval, promptTokens)
}

// droppedPattern returns the pattern of a group that is not kept in the store, by its
// position in Pool.Groups: the sentinel, or the window rule if only its bounded replay keeps
// it out. (Reference: the coordinator's masks of such groups, which no worker asks for.)
func (c *Coordinator) droppedPattern(i int, interval *int, promptTokens int64) Mask {
	group := c.widen(c.pool.Groups[i])
	if !group.BoundedReplay || c.pool.SchedulerBlockSize%group.BlockSize != 0 {
		return allMask
	}
	return c.reachableWindow(&group, false, interval, promptTokens)
}

// reachablePattern returns which chunks of group g a later lookup can hit, as a mask
// without a length. interval is the retention interval, nil for none. (Reference:
// reachable_block_mask of each single-type KV cache manager.)
func (c *Coordinator) reachablePattern(g int, interval *int, promptTokens int64) Mask {
	group := &c.groups[g]
	switch {
	case group.Kind.IsWindow():
		eagle := group.eagle
		if c.rules.mergedEagle {
			eagle = c.attention[group.attention].eagle
		}
		return c.reachableWindow(&group.Group, eagle, interval, promptTokens)
	case group.Kind == Mamba && interval != nil && c.rules.mambaStore == mambaStoreRetained:
		return c.reachableMamba(group.BlockSize, *interval, promptTokens)
	}
	return allMask
}

// reachableWindow is reachablePattern of a sliding window: the window's blocks before each
// segment boundary. For eagle, which drops the last block, they are one further right.
func (c *Coordinator) reachableWindow(group *Group, eagle bool, interval *int, promptTokens int64) Mask {
	block, need := int64(group.BlockSize), int64(group.windowBlocks(eagle))
	m := Mask{}
	if eagle {
		m.rule.shift = 1
	}
	segment := int64(c.pool.SchedulerBlockSize)
	if interval != nil {
		segment = int64(*interval)
	}
	if segment > 0 {
		m.rule.period, m.rule.tail = segment/block, need
		if need >= m.rule.period {
			return allMask
		}
	}
	if interval != nil && promptTokens >= 0 {
		for i, boundary := range c.replayBoundaries(promptTokens) {
			end := boundary/block + m.rule.shift
			m.extra[i] = run{max(0, end-need), max(0, end)}
		}
	}
	return m
}

// reachableMamba is reachablePattern of mamba: the one block before each retention
// boundary.
func (c *Coordinator) reachableMamba(blockSize, interval int, promptTokens int64) Mask {
	block := int64(blockSize)
	m := Mask{}
	if interval > 0 {
		m.rule.period, m.rule.tail = int64(interval)/block, 1
		if m.rule.period <= 1 {
			return allMask
		}
	}
	if promptTokens >= 0 {
		end := max(0, c.replayBoundaries(promptTokens)[0]/block)
		m.extra[0] = run{max(0, end-1), end}
	}
	return m
}

// replayBoundaries returns the longest hit, in tokens, that a repeated prompt can get: at
// least one token is always computed. As in the reference the division rounds down, so the
// boundary of 0 tokens is minus one scheduler block. With an eagle group, which drops a
// block, releases with eagleReplay have two boundaries; otherwise both are the same.
func (c *Coordinator) replayBoundaries(promptTokens int64) [2]int64 {
	block := int64(c.pool.SchedulerBlockSize)
	last := -block
	if promptTokens > 0 {
		last = floorTo(promptTokens-1, block)
	}
	if !c.rules.eagleReplay || c.numEagle == 0 {
		return [2]int64{last, last}
	}
	return [2]int64{max(0, last-block), max(0, floorTo(promptTokens, block)-block)}
}
