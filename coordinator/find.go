package coordinator

import (
	"fmt"
	"math"
)

// Scratch is the working memory of FindHit and holds the masks of its last
// call. The zero value is ready. It may go from one coordinator to another, and
// serves one call at a time.
type Scratch struct {
	c       *Coordinator // of the last FindHit
	results []result     // by attention group
}

type result struct {
	found
	ones     span // what it has seen
	known    bool // the finder has run
	verified bool // the eagle block has been dropped and nothing shrank since
}

func (s *Scratch) reset(c *Coordinator) {
	s.c = c
	if cap(s.results) < len(c.attention) {
		s.results = make([]result, len(c.attention))
	}
	s.results = s.results[:len(c.attention)]
	clear(s.results)
}

// Mask returns the mask of group g that the last FindHit found. It may be
// longer than the hit: only the first attention group is cut to the common hit,
// as in the reference. After an error its content means nothing.
func (s *Scratch) Mask(g int) Mask {
	r := &s.results[s.c.groups[g].attention]
	return foundMask(r.null, r.real)
}

// FindHit returns how many leading tokens, at most maxLength, every group can
// serve, and leaves the masks in s. applyEagle false treats no group as eagle.
// maxLength may lie beyond the hashes: rules that read the last block first then
// return ErrIndexOutOfRange. A negative maxLength is what it is in the reference:
// ErrNegativeLength if a group is of the full family, otherwise empty masks and a
// hit of maxLength, or of 0 in a pool of one attention group. (Reference: the
// coordinator's find_longest_cache_hit.)
//
// No time or memory is proportional to maxLength, and nothing is allocated once
// s has served a pool of as many groups.
func (c *Coordinator) FindHit(p *Presence, maxLength int64, applyEagle bool, s *Scratch) (int64, error) {
	if err := c.checkPresence(p); err != nil {
		return 0, err
	}
	s.reset(c)
	if maxLength < 0 {
		return c.findNegative(p, maxLength, applyEagle, s)
	}
	if len(c.attention) == 1 {
		return c.findSingle(p, maxLength, applyEagle, s)
	}
	hit, once := maxLength, len(c.attention) == 2 && c.attention[0].Kind.IsFull()
	for {
		common, err := c.pass(p, hit, maxLength, applyEagle, s)
		if err != nil {
			return 0, err
		}
		if common >= hit {
			break
		}
		hit = common
		// One full attention group and one other: a full prefix cut to the
		// other's hit is still a full prefix, nothing can change again.
		if once {
			break
		}
	}
	if first := &c.attention[0]; first.Kind.IsFull() {
		s.results[0].cut(ceilDiv(hit, first.block))
	}
	return hit, nil
}

func (c *Coordinator) findSingle(p *Presence, maxLength int64, applyEagle bool, s *Scratch) (int64, error) {
	a := &c.attention[0]
	q := request{maxLength: maxLength, align: c.align, drop: applyEagle && a.eagle, ones: &s.results[0].ones}
	if c.rules.singleAlignsToBlock {
		q.align = a.block
	}
	f, err := c.find(a, p, q)
	s.results[0].found = f
	return f.hit, err
}

// findNegative is FindHit for a negative length. Finders that look from the right
// find nothing there to look at, and say so only after they have checked the
// alignment; that of the full family fails.
func (c *Coordinator) findNegative(p *Presence, maxLength int64, applyEagle bool, s *Scratch) (int64, error) {
	if c.attention[0].Kind.IsFull() {
		return 0, fmt.Errorf("%w: %d tokens", ErrNegativeLength, maxLength)
	}
	if len(c.attention) == 1 {
		return c.findSingle(p, 0, applyEagle, s)
	}
	if _, err := c.pass(p, 0, 0, applyEagle, s); err != nil {
		return 0, err
	}
	return maxLength, nil
}

// pass lets each attention group in turn shorten the hit, and returns the hit
// after the last. FindHit repeats it until nothing changes.
func (c *Coordinator) pass(p *Presence, hit, maxLength int64, applyEagle bool, s *Scratch) (int64, error) {
	for i := range c.attention {
		a, r := &c.attention[i], &s.results[i]
		if a.Kind.IsFull() && r.known {
			if c.rules.fullKeepsHit {
				hit = min(hit, r.hit)
			} else {
				hit = floorTo(hit, a.block)
			}
			continue
		}
		q := request{maxLength: hit, align: c.align, drop: applyEagle && a.eagle && !r.verified, ones: &r.ones}
		if q.drop {
			q.maxLength += min(c.peek(a), maxLength-hit)
		}
		f, err := c.find(a, p, q)
		if err != nil {
			return 0, err
		}
		r.found, r.known = f, true
		if q.drop {
			r.verified = true
		} else if f.hit < hit {
			s.forgetVerified()
		}
		hit = f.hit
	}
	return hit, nil
}

// peek is how far past the common hit an eagle group looks, so that the block
// it gives up is not one that the others already found.
func (c *Coordinator) peek(a *attentionGroup) int64 {
	switch {
	case a.Kind == Mamba && !c.rules.mambaPeeks:
		return 0
	case a.Kind.IsFull() && c.fine:
		return c.align
	}
	return a.block
}

// LookEnd returns how far a lookup's rules may look in a prompt of which a full-attention
// group lacks the chunk that begins, or in fine-grained mode ends, at this token. What lies
// further does not change the answer.
//
// In fine-grained mode hits end inside chunks, and a full-attention group gives whole
// chunks of what the groups before it have found. Where full-attention groups have blocks
// of unequal sizes nothing bounds how far that reaches. Otherwise all must be known to
// where chunks of all groups end together, and as much further for each eagle group: it
// gives up to a block less than it has found, which the next may round down to a chunk.
func (c *Coordinator) LookEnd(token int64) int64 {
	end := token + c.lookahead
	switch {
	case !c.fine:
		return end
	case c.unequalFull:
		return math.MaxInt64 / 2 // no prompt is that long
	}
	return (ceilDiv(end, c.allChunks) + c.eagleGroups) * c.allChunks
}

// setLookEnd computes what LookEnd adds. lookahead is how many tokens past the beginning of
// the first chunk that a full-attention group lacks a lookup's rules may still look, but
// for what fine-grained mode adds.
//
// Let the chunk begin at token F. The full group cuts the hit to F. Each eagle group
// behind it looks at most one block past the hit at hand, and only an eagle mamba
// group returns more than it was given, and that only where rules.mambaPeeks. So the
// first pass ends at F plus the blocks of these mamba groups, or before, and looks at
// most at F plus the blocks of all eagle groups. A later pass begins where the one
// before has ended, never later than the first, since it is only made if the hit has
// become shorter. All groups may peek again in it: a group that shortens the hit
// clears what is verified.
func (c *Coordinator) setLookEnd() {
	c.allChunks = 1
	for i := range c.attention {
		a := &c.attention[i]
		c.allChunks = lcm(c.allChunks, a.block) // divides the scheduler block size
		c.unequalFull = c.unequalFull || a.Kind.IsFull() && a.block != c.attention[0].block
		if !a.eagle {
			continue
		}
		c.eagleGroups++
		c.lookahead += a.block
		if a.Kind == Mamba && c.rules.mambaPeeks {
			c.lookahead += a.block // it can lengthen a hit
		}
	}
}

func (s *Scratch) forgetVerified() {
	for i := range s.results {
		s.results[i].verified = false
	}
}
