package coordinator

import (
	"math"
	"math/bits"
	"slices"

	"github.com/hitline/hitline/netproto"
)

// exactRounds is the number of rounds in which LookupBlocks checks only blocks that the rules
// read. After them it checks all that can matter: a window with a gap in each of its runs would
// otherwise take as many rounds as it has gaps. A round takes about half a nanosecond for each
// hash of the prompt, so all of them cost about one call of a cheap exists for each.
const exactRounds = 64

// LookupBlocks is Lookup for a program that has a store of its own: exists reports whether all
// ranks hold the block of a store group that is keyed by hash. The hit is that of Lookup over
// a store that holds these blocks and no others. So are the errors.
//
// It calls exists only for blocks that Lookup checks, and only for those that can change the
// hit: for none behind the first gap of full attention, and mostly for the last window or
// state alone. Equal calls must get equal answers. hash is only borrowed. exists may take
// locks, and may call c.
func (c *Coordinator) LookupBlocks(numTokens int64, hashes netproto.Hashes, exists func(group int, hash []byte) bool) (Hit, error) {
	l, err := c.newGallop(numTokens, hashes)
	if l == nil {
		return Hit{}, err
	}
	defer l.release()
	for round := 1; ; round++ {
		hit, err := l.evaluate(numTokens)
		if l.numWanted() == 0 {
			hit.TailBoundaries = slices.Clone(hit.TailBoundaries) // they are l's
			return hit, err
		}
		if round >= exactRounds {
			l.wantReadable()
		}
		l.checkBlocks(exists)
	}
}

// checkBlocks determines the wanted positions in front of the first gap of full attention. The
// first wanted one is always among them, so a search ends.
func (l *gallop) checkBlocks(exists func(group int, hash []byte) bool) {
	end := int64(math.MaxInt64) // token: positions that end behind it cannot matter
	for i := range l.c.attention {
		a := &l.c.attention[i]
		for _, g := range a.members {
			end = min(end, l.checkGroup(a, g, end, exists))
		}
	}
}

// checkGroup is checkBlocks for group g of a. It returns the token behind which positions
// cannot matter, by what g lacks.
func (l *gallop) checkGroup(a *attentionGroup, g int, end int64, exists func(group int, hash []byte) bool) int64 {
	stride := l.c.KeyStride(g)
	tokens := int64(stride * l.c.pool.HashBlockSize)
	for w, wanted := range l.reads.wanted[g] {
		for ; wanted != 0; wanted &= wanted - 1 {
			i := w*64 + bits.TrailingZeros64(wanted)
			if (int64(i)+1)*tokens > end {
				return end
			}
			bit := wanted & -wanted
			l.undetermined[g][w] &^= bit
			if exists(g, l.hashes.At(netproto.KeyIndex(i, stride))) {
				continue
			}
			l.presence.Bits[g][w] &^= bit
			if a.Kind.IsFull() {
				// In fine-grained mode this can be too near: what is left out is then wanted
				// in the next round again.
				end = min(end, l.c.LookEnd(int64(i)*tokens))
			}
		}
	}
	return end
}
