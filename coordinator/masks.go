package coordinator

import (
	"fmt"
	"math"
)

// NoPrompt is the number of prompt tokens to give where none is known.
const NoPrompt = -1

// StoreMask returns, for each group, which chunks of the first alignedLen
// tokens are worth storing. Entry 0 is the first chunk that begins at or after
// startToken, of which a negative value counts as 0; only revision 2026-08-17
// knows one other than 0. The pool's retention interval thins the masks out, and
// then promptTokens (or NoPrompt) keeps the chunks that a replay of that prompt
// needs. A group whose chunks are all worth storing gets the all-true sentinel,
// except at revision 2026-06-04, which always gives lists. Every mask has an entry
// for each whole chunk from entry 0 to alignedLen, none if that is negative. An
// alignedLen off the alignment is an ErrPrecondition, and so is a negative one at
// revision 2026-06-20 unless all masks are the sentinel. (Reference: the
// coordinator's store_mask.)
func (c *Coordinator) StoreMask(alignedLen, startToken, promptTokens int64) ([]Mask, error) {
	if err := c.checkAligned(alignedLen); err != nil {
		return nil, err
	}
	if startToken != 0 && c.pool.Revision != Revision20260817 {
		return nil, fmt.Errorf("%w: start token %d at revision %s, want 0", ErrPrecondition, startToken, c.pool.Revision)
	}
	if c.pool.Revision == Revision20260604 {
		return c.templateMasks(alignedLen)
	}
	masks := make([]Mask, len(c.groups))
	for g := range masks {
		masks[g] = c.keptPattern(g, c.pool.RetentionInterval, promptTokens)
	}
	return c.cutMasks(masks, alignedLen, startToken)
}

// cutMasks makes rules the masks of the chunks from startToken to alignedLen.
func (c *Coordinator) cutMasks(masks []Mask, alignedLen, startToken int64) ([]Mask, error) {
	for g := range masks {
		m, block := &masks[g], int64(c.pool.Groups[g].BlockSize)
		if alignedLen < 0 && !m.all && c.pool.Revision != Revision20260817 {
			return nil, fmt.Errorf("%w: a mask of group %d for %d tokens", ErrPrecondition, g, alignedLen)
		}
		end := max(0, alignedLen/block)
		m.origin = min(end, ceilDiv(max(0, startToken), block))
		m.n = end - m.origin
	}
	return masks, nil
}

// LookupMask returns, for each group, which chunks of the first alignedLen
// tokens a lookup asks the store for: those that StoreMask would keep without a
// retention interval. alignedLen is as for StoreMask. Revision 2026-06-04 has no
// such masks: ErrNotImplemented. (Reference: the coordinator's lookup_mask.)
func (c *Coordinator) LookupMask(alignedLen int64) ([]Mask, error) {
	if c.pool.Revision == Revision20260604 {
		return nil, fmt.Errorf("%w: revision %s has no lookup masks", ErrNotImplemented, c.pool.Revision)
	}
	if err := c.checkAligned(alignedLen); err != nil {
		return nil, err
	}
	masks := make([]Mask, len(c.groups))
	for g := range masks {
		masks[g] = c.groups[g].asked
	}
	return c.cutMasks(masks, alignedLen, 0)
}

// KeyMask returns LookupMask's rule for group g without an end: it has
// math.MaxInt64 entries. It allocates nothing, and in fine-grained mode, where
// lookups are not masked, it is the sentinel.
func (c *Coordinator) KeyMask(g int) Mask {
	if c.fine {
		return allMask
	}
	return c.groups[g].asked
}

// LoadMask returns, for each group, which chunks a request with numHashes
// hashes must load to be served its first tokenLen tokens, which are a hit
// already: nothing is dropped for eagle again. Never the sentinel. A negative
// tokenLen is as for FindHit. (Reference: the coordinator's load_mask.)
func (c *Coordinator) LoadMask(numHashes int, tokenLen int64) ([]Mask, error) {
	return c.maskOfEverything(numHashes, tokenLen, false)
}

// maskOfEverything finds over a pool that holds everything.
func (c *Coordinator) maskOfEverything(numHashes int, tokenLen int64, applyEagle bool) ([]Mask, error) {
	var s Scratch
	p := Presence{NumHashes: numHashes, Everything: true}
	if _, err := c.FindHit(&p, tokenLen, applyEagle, &s); err != nil {
		return nil, err
	}
	masks := make([]Mask, len(c.groups))
	for g := range masks {
		masks[g] = s.Mask(g)
	}
	return masks, nil
}

// askedPattern is the rule of group g's lookup mask.
func (c *Coordinator) askedPattern(g int) Mask {
	m := c.keptPattern(g, nil, NoPrompt)
	if !m.all {
		m.n = math.MaxInt64
	}
	return m
}

// keptPattern is the rule for which chunks of group g are worth keeping, as a
// mask without a length (reference: reachable_block_mask of each single-type
// KV cache manager).
func (c *Coordinator) keptPattern(g int, interval *int, promptTokens int64) Mask {
	group := &c.pool.Groups[g]
	switch {
	case group.Kind.window():
		return c.keptWindow(g, interval, promptTokens)
	case group.Kind == Mamba && interval != nil && c.pool.Revision == Revision20260817:
		return c.keptState(g, *interval, promptTokens)
	}
	return allMask
}

// keptWindow keeps the blocks of the window in front of each segment boundary,
// one further to the right for eagle, which gives the last one up.
func (c *Coordinator) keptWindow(g int, interval *int, promptTokens int64) Mask {
	a := &c.attention[c.groups[g].attention]
	eagle := c.groups[g].eagle
	if c.rules.mergedEagle {
		eagle = a.eagle
	}
	need := int64(a.windowBlocks(eagle))
	m := Mask{}
	if eagle {
		m.shift = 1
	}
	segment := int64(c.pool.SchedulerBlockSize)
	if interval != nil {
		segment = int64(*interval)
	}
	if segment > 0 {
		m.per, m.need = segment/a.block, need
		if need >= m.per {
			return allMask
		}
	}
	if interval != nil && promptTokens >= 0 {
		end := c.replayBoundary(promptTokens)/a.block + m.shift
		m.lo, m.hi = max(0, end-need), max(0, end)
	}
	return m
}

// keptState keeps the one block in front of each retention boundary.
func (c *Coordinator) keptState(g, interval int, promptTokens int64) Mask {
	block := int64(c.pool.Groups[g].BlockSize)
	m := Mask{}
	if interval > 0 {
		m.per, m.need = int64(interval)/block, 1
		if m.per <= 1 {
			return allMask
		}
	}
	if promptTokens >= 0 {
		m.hi = max(0, c.replayBoundary(promptTokens)/block)
		m.lo = max(0, m.hi-1)
	}
	return m
}

// replayBoundary is the last hit that a prompt of so many tokens can get when
// it comes again: at least one token is always computed. The division rounds
// towards minus infinity, so that a prompt of 0 tokens has its boundary one
// scheduler block in front of the first.
func (c *Coordinator) replayBoundary(promptTokens int64) int64 {
	block := int64(c.pool.SchedulerBlockSize)
	if promptTokens == 0 {
		return -block
	}
	return floorTo(promptTokens-1, block)
}

// templateMasks are the store masks of revision 2026-06-04: the mask of one
// scheduler block, found with eagle in a pool that holds everything, again and
// again. With eagle the template, and so the mask, can come out empty; later
// revisions mend that, and this one has to keep it.
func (c *Coordinator) templateMasks(alignedLen int64) ([]Mask, error) {
	masks := make([]Mask, len(c.groups))
	if alignedLen <= 0 {
		return masks, nil
	}
	if c.denseTemplate() {
		for g := range masks {
			masks[g] = foundMask(0, alignedLen/int64(c.pool.Groups[g].BlockSize))
		}
		return masks, nil
	}
	templates, err := c.maskOfEverything(c.pool.SchedulerBlockSize/c.pool.HashBlockSize, c.align, true)
	if err != nil {
		return nil, err
	}
	for g, template := range templates {
		masks[g] = template.repeated(alignedLen / c.align)
	}
	return masks, nil
}

// denseTemplate tells whether every chunk is kept without finding anything.
func (c *Coordinator) denseTemplate() bool {
	for i := range c.attention {
		if a := &c.attention[i]; !a.Kind.IsFull() && a.block != c.align {
			return false
		}
	}
	return true
}
