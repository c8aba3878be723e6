package coordinator

import (
	"fmt"
	"math"
	"math/bits"
)

// Presence tells which blocks of one request are stored on every rank that must hold them.
// The caller owns it; the coordinator only reads it, during a call.
//
// Bits[g] is the bitset of group g in words of 64, lowest bit first. Bit i is position first+i
// of the group, first being FirstPosition(g, Start): the block keyed by raw hash
// KeyIndex(first+i, KeyStride(g)). Missing words count as zero, so a caller that stops at the
// first miss need not pad. Bits behind the last whole block are not read.
type Presence struct {
	NumHashes  int  // raw hashes of the request, those before Start included
	Everything bool // every block of every group is stored; Bits is not read
	Bits       [][]uint64

	// Start is the token at which the lookup begins: see CheckStart. Of the positions before the
	// first of Bits those in KeyMask are present, and no other.
	Start int64

	// onRead, unless it is nil, is called with what the finders read: the positions [from, to) of the
	// members of an attention group, counted from the first of Bits.
	onRead func(members []int, from, to int)
}

// checkPresence fails unless p fits the pool.
func (c *Coordinator) checkPresence(p *Presence) error {
	if p.NumHashes < 0 {
		return fmt.Errorf("%w: %d hashes", ErrInvalidPresence, p.NumHashes)
	}
	if !p.Everything && len(p.Bits) < len(c.groups) {
		return fmt.Errorf("%w: bits of %d groups, the pool has %d", ErrInvalidPresence, len(p.Bits), len(c.groups))
	}
	return nil
}

// view is the presence of one attention group: position i is set if it is set for every
// member. The words of the members are combined as they are read. They begin with position first.
type view struct {
	bits    [][]uint64
	members []int
	first   int
	before  *periodic // the positions before first that are set
	onRead  func(members []int, from, to int)
}

func (a *attentionGroup) view(p *Presence) view {
	v := view{bits: p.Bits, members: a.members, before: a.before, onRead: p.onRead}
	switch {
	case p.Everything:
		v.first, v.before = math.MaxInt, &everyPosition
	case p.Start > 0:
		v.first = int(p.Start / (a.block / int64(a.chunkPositions)))
	}
	return v
}

// firstBlock returns how many blocks of chunkPositions positions lie before the words. They are all set if
// chunkPositions is not 1: in fine-grained mode KeyMask has every position.
func (v *view) firstBlock(chunkPositions int) int {
	if chunkPositions == 1 || v.first == 0 { // the usual cases are not divided
		return v.first
	}
	return v.first / chunkPositions
}

// recordRead records that the answer depends on the positions [from, to).
func (v *view) recordRead(from, to int) {
	if v.onRead != nil {
		v.onRead(v.members, from-v.first, to-v.first)
	}
}

// word returns the positions from first+64*w on.
func (v *view) word(w int) uint64 {
	word := ^uint64(0)
	for _, g := range v.members {
		set := v.bits[g]
		if w >= len(set) {
			return 0
		}
		word &= set[w]
	}
	return word
}

// has reports whether position i is set.
func (v *view) has(i int) bool {
	v.recordRead(i, i+1)
	if i < v.first {
		return v.before.has(int64(i))
	}
	at := i - v.first
	return v.word(at/64)>>(at%64)&1 != 0
}

// onesFrom returns the first clear position at or after from, at most limit. It returns
// from if that is not below limit.
func (v *view) onesFrom(from, limit int) int {
	if from >= limit {
		return from
	}
	end := from
	if from < v.first {
		end = int(min(v.before.nextGap(int64(from)), int64(v.first)))
	}
	for end >= v.first && end < limit {
		at := end - v.first
		zero := bits.TrailingZeros64(^v.word(at/64) >> (at % 64))
		if zero < 64-at%64 {
			end += zero
			break
		}
		end = v.first + v.skipOnes(at/64+1, limit-v.first)*64
	}
	end = min(end, limit)
	v.recordRead(from, min(end, limit-1)+1)
	return end
}

// skipOnes returns the index of a word at or after w; the words from w up to it are all
// ones. It stops at limit, in bits. A fully stored chain is all ones.
func (v *view) skipOnes(w, limit int) int {
	if len(v.members) > 1 {
		return w
	}
	set := v.bits[v.members[0]]
	end := min(len(set), (limit+63)/64)
	for w < end && set[w] == ^uint64(0) {
		w++
	}
	return w
}

// leadingBlocks returns the number of blocks, at most limit, before the first absent one.
// A block is chunkPositions positions long.
func (v *view) leadingBlocks(limit, chunkPositions int) int {
	if chunkPositions == 1 {
		return v.onesFrom(0, limit)
	}
	n := min(limit, v.firstBlock(chunkPositions))
	for n < limit && v.hasBlock(n, chunkPositions) {
		n++
	}
	return n
}

// hasBlock reports whether block i of chunkPositions positions is present: its last position
// keys it.
func (v *view) hasBlock(i, chunkPositions int) bool {
	return v.has(KeyIndex(i, chunkPositions))
}

// lastOne returns the highest set position in [0, i], or -1.
func (v *view) lastOne(i int) int {
	if i < 0 {
		return -1
	}
	at, end := -1, i-v.first
	if end >= 0 {
		word := v.word(end/64) << (63 - end%64) // position i is now the top bit
		if word != 0 {
			at = i - bits.LeadingZeros64(word)
		}
		for w := end/64 - 1; w >= 0 && at < 0; w-- {
			if word := v.word(w); word != 0 {
				at = v.first + w*64 + 63 - bits.LeadingZeros64(word)
			}
		}
	}
	if at < 0 {
		at = int(v.before.last(int64(min(i, v.first-1))))
	}
	v.recordRead(max(at, 0), i+1)
	return at
}

// firstOne returns the lowest set position in [from, to), to if there is none.
func (v *view) firstOne(from, to int) int {
	at := from
	if from < v.first {
		at = int(min(v.before.next(int64(from)), int64(v.first)))
	}
	for at >= v.first && at < to {
		w := (at - v.first) / 64
		if word := v.word(w) >> ((at - v.first) % 64); word != 0 {
			at += bits.TrailingZeros64(word)
			break
		}
		set := v.bits[v.members[0]]
		for w++; w < len(set) && set[w] == 0 && w < (to-v.first)/64; w++ { // words without a block of the first group
		}
		at = v.first + w*64
	}
	at = max(from, min(at, to))
	v.recordRead(from, min(at+1, to))
	return at
}

// lastZero returns the highest clear position in [from, i], or -1.
func (v *view) lastZero(from, i int) int {
	at := -1
	for end := i - v.first; end >= max(0, from-v.first) && at < 0; end = end/64*64 - 1 {
		if word := ^v.word(end/64) << (63 - end%64); word != 0 {
			at = v.first + end - bits.LeadingZeros64(word)
		}
	}
	if at < 0 && from < v.first {
		at = int(v.before.lastGap(int64(min(i, v.first-1))))
	}
	if at < from {
		at = -1
	}
	v.recordRead(max(at, from), i+1)
	return at
}
