package coordinator

import (
	"fmt"
	"math"
)

// found is the result of one attention group: a mask of null entries followed
// by real ones (every finder's mask has that shape), and the hit in tokens.
type found struct {
	null, real int64
	hit        int64
}

func (f *found) entries() int64 { return f.null + f.real }

// cut shortens the mask to n entries.
func (f *found) cut(n int64) {
	f.null = min(f.null, n)
	f.real = min(f.real, n-f.null)
}

// request is what a finder is asked.
type request struct {
	maxLength int64 // tokens, not negative
	align     int64 // tokens; the hit is a multiple of it
	drop      bool  // eagle: the last block is looked at and given up
	ones      *span // of this group and Presence
}

// span is a run of positions that a finder has seen to be set, from one to the other,
// the latter excluded. It runs again and again while the common hit shrinks, and need
// not look at them again: a window can be a million positions long.
type span struct{ from, to int }

// find runs the finder of a's kind (reference: the find_longest_cache_hit of
// each single-type KV cache manager).
func (c *Coordinator) find(a *attentionGroup, p *Presence, q request) (found, error) {
	switch {
	case a.Kind.IsFull():
		return findFull(a, p, q), nil
	case a.Kind.window():
		return c.findWindow(a, p, q)
	case a.Kind == ChunkedLocalAttention:
		return c.findLocal(a, p, q)
	case q.align < a.block:
		return findState(a, p, q), nil
	}
	return c.findMamba(a, p, q)
}

// lax tells whether a's blocks behind the end of the hashes are merely absent.
// They are present even so in a pool that holds whatever it is asked for.
func (c *Coordinator) lax(a *attentionGroup) bool { return c.rules.laxEnd && a.stride > 1 }

// known returns how many of the first blocks chunks have something to say
// about them.
func (c *Coordinator) known(a *attentionGroup, p *Presence, blocks int64) int64 {
	if p.Everything && c.lax(a) {
		return min(blocks, math.MaxInt)
	}
	return min(blocks, int64(p.NumHashes/a.stride))
}

// reach is known for the finders that begin at the last block: they read that
// one first, so a request with too few hashes fails at once.
func (c *Coordinator) reach(a *attentionGroup, p *Presence, blocks int64) (int, error) {
	known := c.known(a, p, blocks)
	if known < blocks && !c.lax(a) {
		return 0, missing(a, blocks-1, known)
	}
	return int(known), nil
}

// missing reports that block i had to be read.
func missing(a *attentionGroup, i, have int64) error {
	return fmt.Errorf("%w: block %d of group %d (%s) has no hash, the request brought hashes for %d",
		ErrIndexOutOfRange, i, a.members[0], a.Kind, have)
}

// findFull takes blocks from the first on while they are cached, never more
// than there are hashes for. If hits may end inside a block, the last cached
// hash inside the next block extends the hit.
func findFull(a *attentionGroup, p *Presence, q request) found {
	v := a.view(p)
	limit := int(min(q.maxLength/a.block, int64(p.NumHashes/a.stride)))
	blocks := v.leadingBlocks(limit, a.step)
	hit := int64(blocks) * a.block
	if q.align < a.block {
		first := blocks * a.stride
		end := int(min(q.maxLength/q.align, int64(p.NumHashes), int64(first+a.stride-1)))
		if last := v.lastOne(end - 1); last >= first {
			hit = int64(last+1) * q.align
		}
	}
	if q.drop && hit > 0 {
		hit -= min(q.align, a.block)
	}
	hit -= hit % q.align
	return found{real: ceilDiv(hit, a.block), hit: hit}
}

// findWindow looks from the right for a run of cached blocks long enough for
// the window, beginning at an aligned right edge. A shorter run counts only if
// it reaches block 0.
func (c *Coordinator) findWindow(a *attentionGroup, p *Presence, q request) (found, error) {
	if q.align%a.block != 0 {
		return found{}, fmt.Errorf("%w: group %d (%s): block_size %d does not divide the alignment %d, which hits inside a block would need",
			ErrPrecondition, a.members[0], a.Kind, a.block, q.align)
	}
	reach, err := c.reach(a, p, q.maxLength/a.block)
	if err != nil {
		return found{}, err
	}
	need := a.windowBlocks(q.drop)
	per := int(q.align / a.block)
	v := a.view(p)
	f := found{}
	start, length := lastRun(&v, reach-1, max(1, need), per, q.drop, q.ones)
	f.null, f.real = int64(start), int64(length)
	if start == 0 && length < need {
		f.cut(floorTo(f.entries(), int64(per)))
	}
	if q.drop && f.entries() > 0 {
		f.cut(floorTo(f.entries()-1, int64(per)))
	}
	f.hit = f.entries() * a.block
	return f, nil
}

// windowBlocks is the number of blocks in front of a position that its window
// needs, and one more if the last is given up.
func (a *attentionGroup) windowBlocks(drop bool) int {
	need := int(ceilDiv(int64(a.SlidingWindow-1), a.block))
	if drop {
		need++
	}
	return need
}

// lastRun returns the start and length of the rightmost run of need positions
// up to last whose right edge is aligned: the right edge of its last block to
// per blocks or, with drop, the left edge. If there is none, the run that
// reaches position 0, which may be empty.
func lastRun(v *view, last, need, per int, drop bool, ones *span) (start, length int) {
	edge := 1
	if drop {
		edge = 0
	}
	for {
		last = v.lastOne(last)
		aligned := (last+edge)/per*per - edge
		switch {
		case last < 0 || aligned < 0:
			return 0, 0
		case aligned < last:
			last = aligned // it need not be cached: look again from there
			continue
		}
		// Only need positions are looked at: a long run costs no more.
		start := last - need + 1
		gap := v.lastGap(max(0, start), last, ones)
		switch {
		case gap >= 0:
			last = gap - 1
		case start < 0:
			return 0, last + 1
		default:
			return start, need
		}
	}
}

// lastGap is lastZero(from, i), given and adding to what is known to be set.
func (v *view) lastGap(from, i int, ones *span) int {
	if ones.from > i || i >= ones.to {
		*ones = span{i + 1, i + 1}
	}
	if from >= ones.from {
		return -1
	}
	gap := v.lastZero(from, ones.from-1)
	ones.from = max(from, gap+1)
	return gap
}

// findLocal takes everything before the current attention chunk as null
// without a look, and then blocks while they are cached.
func (c *Coordinator) findLocal(a *attentionGroup, p *Presence, q request) (found, error) {
	if q.drop {
		return found{}, fmt.Errorf("%w: group %d: %s cannot be an eagle group", ErrPrecondition, a.members[0], a.Kind)
	}
	if a.block != q.align {
		return found{}, fmt.Errorf("%w: group %d: %s needs its block_size %d to equal the alignment %d",
			ErrPrecondition, a.members[0], a.Kind, a.block, q.align)
	}
	blocks := q.maxLength / a.block
	null := floorTo(q.maxLength, int64(a.AttentionChunkSize)) / a.block
	known := c.known(a, p, blocks)
	end := null
	if null < known {
		v := a.view(p)
		if int(null) != q.ones.from || int(known) > q.ones.to {
			*q.ones = span{int(null), v.onesFrom(int(null), int(known))}
		}
		end = min(known, int64(q.ones.to))
	}
	if end < blocks && end >= known && !c.lax(a) {
		return found{}, missing(a, end, known)
	}
	return found{null: null, real: end - null, hit: end * a.block}, nil
}

// findMamba looks from the right for one cached block with an aligned right
// edge: the state there stands for everything before it.
func (c *Coordinator) findMamba(a *attentionGroup, p *Presence, q request) (found, error) {
	reach, err := c.reach(a, p, q.maxLength/a.block)
	if err != nil {
		return found{}, err
	}
	v := a.view(p)
	start, length := lastRun(&v, reach-1, 1, int(q.align/a.block), false, q.ones)
	if length == 0 {
		return found{}, nil
	}
	return found{null: int64(start), real: 1, hit: int64(start+1) * a.block}, nil
}

// findState is findMamba where hits may end inside a block: the last cached
// hash wins, and its block is the one real entry.
func findState(a *attentionGroup, p *Presence, q request) found {
	v := a.view(p)
	last := v.lastOne(int(min(q.maxLength/q.align, int64(p.NumHashes))) - 1)
	if last < 0 {
		return found{}
	}
	return found{null: int64(last / a.stride), real: 1, hit: int64(last+1) * q.align}
}

// ceilDiv divides rounding up; a is not negative, b positive.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 {
		q++
	}
	return q
}

// floorTo rounds down to a multiple of b; a is not negative, b positive.
func floorTo(a, b int64) int64 { return a - a%b }
