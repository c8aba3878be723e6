package coordinator

import (
	"math"

	"github.com/hitline/hitline/internal/requesterror"
)

// TokenLen returns the tokens that a lookup of numTokens covers, a multiple of Alignment.
// If numTokens is not, releases up to 0.26.0 fail with ErrPrecondition and later ones round
// it down. Negative numbers count as 0.
func (c *Coordinator) TokenLen(numTokens int64) (int64, error) {
	numTokens = max(0, numTokens)
	if c.rules.floorsTokens {
		return floorTo(numTokens, c.align), nil
	}
	if err := c.checkAligned(numTokens); err != nil {
		return 0, requesterror.New(ErrPrecondition, "%s, which vLLM up to 0.26.0 sends: set pool.vllm to the engine's release", err)
	}
	return numTokens, nil
}

// NeedsAligned reports whether the length of a lookup must be a multiple of Alignment:
// releases up to 0.26.0. Later ones round it down.
func (c *Coordinator) NeedsAligned() bool { return !c.rules.floorsTokens }

// HashesFrom returns those of the hashes of a whole prompt from the last possible start at or
// before a token on: the token, or what the hashes cover if that is less, rounded down to a
// multiple of the scheduler block size. A caller in this process gives it the number of tokens that
// an engine holds. Nothing else rounds a start.
func (c *Coordinator) HashesFrom(hashes Hashes, token int64) Hashes {
	hashBlock := int64(c.pool.HashBlockSize)
	start := floorTo(max(0, min(token, int64(hashes.Len())*hashBlock, noStart-1)), int64(c.pool.SchedulerBlockSize))
	hashes.blob = hashes.blob[start/hashBlock*int64(hashes.hashLen):]
	return hashes.From(start)
}

// CheckStart fails with ErrPrecondition if no lookup of numTokens begins at token start: it is not a
// multiple of the scheduler block size, beyond numTokens, or so large that no prompt is as long.
//
// A lookup with a start is about what an engine lacks that already holds the tokens before. The
// answer is that of a store that also holds, for every group and on every rank, all positions that
// end at or before start. Their keys are not checked, and no hash before start is needed. Hashes
// are still counted from the beginning of the prompt. A hit at or below start means that there is
// nothing to load.
func (c *Coordinator) CheckStart(start, numTokens int64) error {
	if start == 0 { // the usual case is not divided
		return nil
	}
	switch block := int64(c.pool.SchedulerBlockSize); {
	case start < 0 || start >= noStart || start%block != 0:
		return requesterror.New(ErrPrecondition, "start_token %d is no multiple of %d, the pool's scheduler_block_size", start, block)
	case start > numTokens:
		return requesterror.New(ErrPrecondition, "start_token %d is beyond num_tokens %d", start, numTokens)
	case start/int64(c.pool.HashBlockSize) > math.MaxInt/2: // an int may have 32 bits
		return requesterror.New(ErrPrecondition, "start_token %d has more than %d hashes before it", start, math.MaxInt/2)
	}
	return nil
}

// NumHashes returns how many hashes a prompt has by its hashes from their start on: those before it
// count.
func (c *Coordinator) NumHashes(hashes Hashes) int {
	if hashes.start == 0 {
		return hashes.Len()
	}
	return int(hashes.Start()/int64(c.pool.HashBlockSize)) + hashes.Len()
}

// FirstPosition returns the first position of group g whose keys a lookup from token start may check: the
// number of those that end at or before start.
func (c *Coordinator) FirstPosition(g int, start int64) int {
	if start == 0 || c.pool.CapacityOnly {
		return 0
	}
	return int(start / (int64(c.KeyStride(g)) * int64(c.pool.HashBlockSize)))
}

// KeysBefore returns how many keys lie before a start: those that count as present, on all ranks.
func (c *Coordinator) KeysBefore(start int64) (keys int64) {
	for g := range c.groups {
		keys += c.blocksBefore(g, start) * int64(len(c.groups[g].ranks))
	}
	return keys
}

// NumBlocks returns how many blocks of all groups the hashes key that a lookup may check.
func (c *Coordinator) NumBlocks(hashes Hashes) (blocks int64) {
	end := hashes.Start() + int64(hashes.Len())*int64(c.pool.HashBlockSize)
	for g := range c.groups {
		blocks += c.blocksBefore(g, end) - c.blocksBefore(g, hashes.Start())
	}
	return blocks
}

// blocksBefore returns how many positions of a group before a token a lookup checks.
func (c *Coordinator) blocksBefore(g int, token int64) int64 {
	return c.groups[g].before.count(int64(c.FirstPosition(g, token)))
}

// Positions returns the number of leading positions of group g that a lookup covers, given
// its TokenLen and number of raw hashes; 0 if the pool is capacity-only. The lookup checks
// those that are true in KeyMask(g).
func (c *Coordinator) Positions(g int, tokenLen int64, numHashes int) int {
	if c.pool.CapacityOnly {
		return 0
	}
	stride := int64(c.KeyStride(g))
	covered := ceilDiv(max(0, tokenLen), stride*int64(c.pool.HashBlockSize))
	return int(min(covered, int64(max(0, numHashes))/stride))
}

// NeededHashes returns how many leading raw hashes a lookup of tokenLen covers.
func (c *Coordinator) NeededHashes(tokenLen int64) int {
	needed := 0
	for g := range c.groups {
		needed = max(needed, c.Positions(g, tokenLen, math.MaxInt)*c.KeyStride(g))
	}
	return needed
}

// hasKeys reports whether a lookup checks at least one key.
func (c *Coordinator) hasKeys(tokenLen int64, numHashes int) bool {
	if c.pool.CapacityOnly || tokenLen <= 0 {
		return false
	}
	for g := range c.groups {
		first, _, ok := c.KeyMask(g).Next(0)
		switch {
		case !ok:
		case first == 0 && numHashes >= c.KeyStride(g): // the usual case; Positions would divide
			return true
		case first < int64(c.Positions(g, tokenLen, numHashes)):
			return true
		}
	}
	return false
}

// Answer returns the worker's answer to a lookup of numTokens. Its TailBoundaries are valid
// until the next use of s. Its errors are those of TokenLen and FindHit, and ErrPrecondition
// if a group has no tail boundary. (Reference: MooncakeStoreWorker.lookup.)
//
// p must have bits only at positions whose keys the lookup checks, see Positions. Answer differs from
// FindHit as follows. Without hashes, tokens or keys it returns 0. From 0.27.0 on it shortens a hit of
// all tokens, so that one token is left to compute.
func (c *Coordinator) Answer(p *Presence, numTokens int64, s *Scratch) (Hit, error) {
	if p.NumHashes <= 0 || numTokens <= 0 {
		return Hit{}, nil
	}
	tokenLen, err := c.TokenLen(numTokens)
	if err != nil || !c.hasKeys(tokenLen, p.NumHashes) {
		return Hit{}, err
	}
	tokens, err := c.FindHit(p, tokenLen, true, s)
	if err != nil {
		return Hit{}, err
	}
	return c.finishHit(p, tokens, numTokens, s)
}

// finishHit shortens a full hit and adds the tail boundaries.
func (c *Coordinator) finishHit(p *Presence, tokens, numTokens int64, s *Scratch) (Hit, error) {
	tokens, err := c.shortenFullHit(p, tokens, numTokens, s)
	if err != nil {
		return Hit{}, err
	}
	if !c.rules.tailBoundaries || tokens <= 0 {
		return Hit{Tokens: tokens}, nil
	}
	s.tail, err = c.appendTailBoundaries(s.tail[:0], p, tokens)
	if err != nil {
		return Hit{}, err
	}
	return Hit{Tokens: tokens, TailBoundaries: s.tail}, nil
}

// shortenFullHit returns hit or, from 0.27.0 on for a hit of all tokens, that of a
// prompt of one token less: at least one token must be left to compute.
func (c *Coordinator) shortenFullHit(p *Presence, hit, numTokens int64, s *Scratch) (int64, error) {
	if !c.rules.shortensFullHit || hit < numTokens {
		return hit, nil
	}
	return c.FindHit(p, floorTo(numTokens-1, c.align), true, s)
}
