package coordinator

import (
	"fmt"
	"math/bits"
)

// Presence is what is known of one request: which of its blocks are stored on
// every rank that must hold them. FindHit only reads it.
//
// Bits[g] is the bitset of group g in words of 64, lowest bit first. Bit i is
// position i of the group, that is the block keyed by raw hash
// i*KeyStride(g) + KeyStride(g) - 1. Words that a slice lacks count as zero,
// so a caller that stopped asking at the first miss need not pad. Bits behind
// the last whole block are never looked at.
type Presence struct {
	NumHashes  int  // raw hashes that the request brought
	Everything bool // every block of every group is stored; Bits is not read
	Bits       [][]uint64

	reads *reads // notes what the finders look at; nil if nobody wants to know
}

func (c *Coordinator) checkPresence(p *Presence) error {
	if p.NumHashes < 0 {
		return fmt.Errorf("%w: %d hashes", ErrInvalidPresence, p.NumHashes)
	}
	if !p.Everything && len(p.Bits) < len(c.groups) {
		return fmt.Errorf("%w: bits of %d groups, the pool has %d", ErrInvalidPresence, len(p.Bits), len(c.groups))
	}
	return nil
}

// view is the presence of one attention group: position i is set if it is set
// for every member. The words of the members are combined only where looked at.
type view struct {
	bits       [][]uint64
	members    []int
	everything bool
	reads      *reads
}

func (a *attentionGroup) view(p *Presence) view {
	return view{bits: p.Bits, members: a.members, everything: p.Everything, reads: p.reads}
}

// note notes that the positions from from to to, to excluded, decide the answer.
func (v *view) note(from, to int) {
	if v.reads != nil {
		v.reads.note(v, from, to)
	}
}

// word returns positions 64*w to 64*w+63. It is not for a pool that holds
// everything, which has no words: the searches below answer for that first.
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

func (v *view) has(i int) bool {
	v.note(i, i+1)
	return v.word(i/64)>>(i%64)&1 != 0
}

// onesFrom returns where the run of set positions that begins at from ends: at
// the first clear one or at limit. It is from itself if that is not set or not
// below limit.
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
	v.note(from, min(end+1, limit))
	return min(end, limit)
}

// skipOnes returns the first word from w on that is not all ones, or one at the
// limit, which is in positions. A chain that is stored whole is nothing else.
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

// leadingBlocks returns how many of the first limit blocks precede the first
// absent one. A block is step positions long, and the last of them counts.
func (v *view) leadingBlocks(limit, step int) int {
	if step == 1 || v.everything {
		return v.onesFrom(0, limit)
	}
	n := 0
	for n < limit && v.has(n*step+step-1) {
		n++
	}
	return n
}

// lastOne returns the highest set position up to i, or -1.
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
	v.note(max(at, 0), i+1)
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
	v.note(max(at, from), last+1)
	return at
}
