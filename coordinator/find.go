package coordinator

import (
	"math"

	"github.com/hitline/hitline/internal/requesterror"
)

// Scratch is the working memory of FindHit and holds the masks of its last call. The zero
// value is ready. It may be used with several coordinators. Not safe for concurrent use.
type Scratch struct {
	c       *Coordinator // of the last FindHit
	results []result     // by attention group
	tail    []TailBoundary
}

// result is what one FindHit knows of an attention group.
type result struct {
	groupHit
	present   span // positions that the finder has seen present
	hasAnswer bool // the finder has run
	verified  bool // the eagle block was dropped, and no group has shortened the hit since
}

// reset prepares s for a FindHit of c.
func (s *Scratch) reset(c *Coordinator) {
	s.c = c
	if cap(s.results) < len(c.attention) {
		const pad = 2 // keeps the next allocation off the last cache line
		s.results = make([]result, len(c.attention), len(c.attention)+pad)
	}
	s.results = s.results[:len(c.attention)]
	clear(s.results)
}

// Mask returns the mask of store group g from the last FindHit. It may be longer than the
// hit: only that of the first attention group is cut to the common hit, from 0.29.0 on those
// of all full-attention groups, as in the reference.
// After an error of FindHit it is undefined.
func (s *Scratch) Mask(g int) Mask {
	r := &s.results[s.c.groups[g].attention]
	return tailMask(r.null, r.real)
}

// FindHit returns the number of leading tokens, at most maxLength, that every group can
// serve, and sets the masks in s. If applyEagle is false no group counts as eagle.
// maxLength may lie beyond the hashes: rules that read the last block first then return
// ErrIndexOutOfRange. A negative maxLength is ErrNegativeLength if a group is of the
// full-attention family. Otherwise the masks are empty, and the hit is maxLength, or 0 in
// a pool of one attention group. (Reference: the coordinator's find_longest_cache_hit.)
//
// Neither time nor memory is proportional to maxLength. It allocates nothing once s has
// served a pool of as many groups.
func (c *Coordinator) FindHit(p *Presence, maxLength int64, applyEagle bool, s *Scratch) (int64, error) {
	if err := c.checkPresence(p); err != nil {
		return 0, err
	}
	s.reset(c)
	switch {
	case maxLength < 0:
		return c.findNegative(p, maxLength, applyEagle, s)
	case len(c.attention) == 1:
		return c.findSingle(p, maxLength, applyEagle, s)
	}
	return c.findCommon(p, maxLength, applyEagle, s)
}

// findCommon runs passes over all attention groups until the hit stays.
func (c *Coordinator) findCommon(p *Presence, maxLength int64, applyEagle bool, s *Scratch) (int64, error) {
	// With one full-attention group and one other, a second pass changes nothing:
	// a cached prefix cut to the other's hit is cached.
	onePass := len(c.attention) == 2 && c.attention[0].Kind.IsFull()
	for before := maxLength; ; {
		hit, err := c.runFinders(p, before, maxLength, applyEagle, s)
		if err != nil {
			return 0, err
		}
		if hit >= before || onePass {
			hit = min(hit, before)
			c.cutFull(s, hit)
			return hit, nil
		}
		before = hit
	}
}

// cutFull cuts the masks of full attention to the hit: that of the first attention group,
// or those of all.
func (c *Coordinator) cutFull(s *Scratch, hit int64) {
	for i := range c.attention {
		a := &c.attention[i]
		if !a.Kind.IsFull() || i > 0 && !c.rules.cutsAllFull {
			return
		}
		s.results[i].cut(ceilDiv(hit, a.block))
	}
}

// findSingle is FindHit in a pool of one attention group.
func (c *Coordinator) findSingle(p *Presence, maxLength int64, applyEagle bool, s *Scratch) (int64, error) {
	a := &c.attention[0]
	args := finderArgs{maxLength: maxLength, align: c.align, drop: applyEagle && a.eagle, present: &s.results[0].present}
	if c.rules.singleAlignsToBlock {
		args.align = a.block
	}
	f, err := c.find(a, p, args)
	s.results[0].groupHit = f
	return f.hit, err
}

// findNegative is FindHit for a negative length. The full-attention rule fails. The other
// finders check the alignment and then find no block to look at.
func (c *Coordinator) findNegative(p *Presence, maxLength int64, applyEagle bool, s *Scratch) (int64, error) {
	if c.attention[0].Kind.IsFull() {
		return 0, requesterror.New(ErrNegativeLength, "num_tokens is %d, want 0 or more", maxLength)
	}
	if len(c.attention) == 1 {
		return c.findSingle(p, 0, applyEagle, s)
	}
	if _, err := c.runFinders(p, 0, 0, applyEagle, s); err != nil {
		return 0, err
	}
	return maxLength, nil
}

// runFinders is one pass of the fixed point: each attention group, one after the other,
// shortens the hit. maxLength is that of FindHit.
func (c *Coordinator) runFinders(p *Presence, hit, maxLength int64, applyEagle bool, s *Scratch) (int64, error) {
	for i := range c.attention {
		a, r := &c.attention[i], &s.results[i]
		if a.Kind.IsFull() && r.hasAnswer {
			if c.rules.fullKeepsHit {
				hit = min(hit, r.hit)
			} else {
				hit = floorTo(hit, a.block)
			}
			continue
		}
		args := finderArgs{maxLength: hit, align: c.align, drop: applyEagle && a.eagle && !r.verified, present: &r.present}
		if args.drop {
			args.maxLength = c.eagleBound(a, p, hit, maxLength)
		}
		found, err := c.find(a, p, args)
		if err != nil {
			return 0, err
		}
		r.groupHit, r.hasAnswer = found, true
		if args.drop {
			r.verified = true
		} else if found.hit < hit {
			s.clearVerified()
		}
		hit = found.hit
	}
	return hit, nil
}

// eagleBound returns the length that an eagle group may look at, given the common hit.
func (c *Coordinator) eagleBound(a *attentionGroup, p *Presence, hit, maxLength int64) int64 {
	ahead := c.eagleLookahead(a)
	if !c.rules.lookaheadToHashes || ahead == 0 {
		return hit + min(ahead, maxLength-hit)
	}
	hashed := int64(min(uint64(p.NumHashes), math.MaxInt64/uint64(c.pool.HashBlockSize))) * int64(c.pool.HashBlockSize)
	return hit + min(ahead, hashed-hit) // hit + ahead may be beyond any int64
}

// eagleLookahead returns the tokens past the common hit that an eagle group may look at.
// It then drops a block past the hit instead of one that the other groups have found.
func (c *Coordinator) eagleLookahead(a *attentionGroup) int64 {
	switch {
	case a.Kind == Mamba && !c.rules.mambaLookahead:
		return 0
	case a.Kind.IsFull() && c.fineGrained:
		return c.align
	}
	return a.block
}

// LookEnd returns the token up to which presence can change a lookup's answer, given the
// first gap of a full-attention group: token is where the missing chunk begins or, in
// fine-grained mode, ends. Positions from LookEnd on do not matter.
//
// In fine-grained mode a hit may end inside a chunk, and a group may round down to whole
// chunks what the groups before it have found. If full-attention groups have unequal block
// sizes, nothing bounds how far that reaches, and LookEnd is beyond any prompt. Otherwise
// presence matters to the next token at which chunks of all groups end, and one such
// distance further for each eagle group: it drops up to a block, and the next group may
// round that down to a chunk.
func (c *Coordinator) LookEnd(token int64) int64 {
	end := token + c.lookahead
	switch {
	case !c.fineGrained:
		return end
	case c.unequalFull:
		return math.MaxInt64 / 2 // longer than any prompt; half, so that callers may add to it
	}
	return (ceilDiv(end, c.blockLCM) + c.numEagle) * c.blockLCM
}

// setLookEnd computes the terms of LookEnd. lookahead is the number of tokens past the
// first gap of a full-attention group that a lookup's rules may read, without what
// fine-grained mode adds.
//
// Let the missing chunk begin at token F. The full group cuts the hit to F. Each eagle
// group behind it looks at most one block past the current hit. Only an eagle mamba group
// under rules.mambaLookahead returns a longer hit than it was given. So the first pass
// ends at most at F plus the blocks of these mamba groups. It reads at most to F plus the
// blocks of all eagle groups.
//
// There is a later pass only if the hit has shrunk. So it begins at most where the first
// one ended, and all groups may look ahead once more: a group that shortens the hit
// clears the verified marks.
func (c *Coordinator) setLookEnd() {
	c.blockLCM = 1
	for i := range c.attention {
		a := &c.attention[i]
		c.blockLCM = lcm(c.blockLCM, a.block) // divides the scheduler block size
		c.unequalFull = c.unequalFull || a.Kind.IsFull() && a.block != c.attention[0].block
		if !a.eagle {
			continue
		}
		c.numEagle++
		c.lookahead += a.block
		if a.Kind == Mamba && c.rules.mambaLookahead {
			c.lookahead += a.block // it can lengthen the hit
		}
	}
}

// clearVerified clears all verified marks.
func (s *Scratch) clearVerified() {
	for i := range s.results {
		s.results[i].verified = false
	}
}
