package coordinator

import (
	"fmt"
	"math/bits"
)

// Presence tells which blocks of one request are stored on every rank that must hold them.
// The caller owns it; the coordinator only reads it, during a call.
//
// Bits[g] is the bitset of group g in words of 64, lowest bit first. Bit i is position i
// of the group: the block keyed by raw hash KeyIndex(i, KeyStride(g)). Missing
// words count as zero, so a caller that stops at the first miss need not pad. Bits behind
// the last whole block are not read.
type Presence struct {
	NumHashes  int  // raw hashes of the request
	Everything bool // every block of every group is stored; Bits is not read
	Bits       [][]uint64

	reads *reads // records the positions that the finders read, unless it is nil
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
// member. The words of the members are combined as they are read.
type view struct {
	bits       [][]uint64
	members    []int
	everything bool
	reads      *reads
}

func (a *attentionGroup) view(p *Presence) view {
	return view{bits: p.Bits, members: a.members, everything: p.Everything, reads: p.reads}
}

// recordRead records that the answer depends on the positions [from, to).
func (v *view) recordRead(from, to int) {
	if v.reads != nil {
		v.reads.record(v, from, to)
	}
}

// word returns positions 64*w to 64*w+63. With everything there are no words, and word
// must not be called.
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
	return v.word(i/64)>>(i%64)&1 != 0
}

// onesFrom returns the first clear position at or after from, at most limit. It returns
// from if that is not below limit.
func (v *view) onesFrom(from, limit int) int {
	if from >= limit {
		return from
	}
	if v.everything {
		return limit
	}
	end := from
	for end < limit {
		zero := bits.TrailingZeros64(^v.word(end/64) >> (end % 64))
		if zero < 64-end%64 {
			end += zero
			break
		}
		end = v.skipOnes(end/64+1, limit) * 64
	}
	v.recordRead(from, min(end+1, limit))
	return min(end, limit)
}

// skipOnes returns the index of a word at or after w; the words from w up to it are all
// ones. It stops at limit, in positions. A fully stored chain is all ones.
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
	if chunkPositions == 1 || v.everything {
		return v.onesFrom(0, limit)
	}
	n := 0
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
	if i < 0 || v.everything {
		return i
	}
	at := -1
	word := v.word(i/64) << (63 - i%64) // position i is now the top bit
	if word != 0 {
		at = i - bits.LeadingZeros64(word)
	}
	for w := i/64 - 1; w >= 0 && at < 0; w-- {
		if word := v.word(w); word != 0 {
			at = w*64 + 63 - bits.LeadingZeros64(word)
		}
	}
	v.recordRead(max(at, 0), i+1)
	return at
}

// firstOne returns the lowest set position in [from, to), to if there is none. It must not be
// called with everything.
func (v *view) firstOne(from, to int) int {
	at, first := from, v.bits[v.members[0]]
	for at < to {
		w := at / 64
		if word := v.word(w) >> (at % 64); word != 0 {
			at += bits.TrailingZeros64(word)
			break
		}
		for w++; w < len(first) && first[w] == 0 && w < to/64; w++ { // words without a block of the first group
		}
		at = w * 64
	}
	at = max(from, min(at, to))
	v.recordRead(from, min(at+1, to))
	return at
}

// lastZero returns the highest clear position in [from, i], or -1.
func (v *view) lastZero(from, i int) int {
	if v.everything {
		return -1
	}
	at, last := -1, i
	for i >= from && at < 0 {
		word := ^v.word(i/64) << (63 - i%64)
		if word != 0 {
			at = i - bits.LeadingZeros64(word)
		}
		i = i/64*64 - 1
	}
	if at < from {
		at = -1
	}
	v.recordRead(max(at, from), last+1)
	return at
}
