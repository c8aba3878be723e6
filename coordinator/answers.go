package coordinator

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/netproto"
)

// What is stored is a set of (group, hash): a position counts as present wherever
// its hash was found to be, asked there or not, and before 2026-08-17 the counts
// of equal hashes add up, half-stored ones with them. Hash chains do not repeat in
// practice, so only requests made up by hand notice; without equal hashes each
// position stands for itself.

// sumsRanks tells whether the counts of equal hashes add up.
func (c *Coordinator) sumsRanks() bool { return c.pool.Revision != Revision20260817 }

// presence turns the store's answers to all keys of a lookup into bits.
func (c *Coordinator) presence(tokenLen int64, hashes netproto.Hashes, answers []int) (*Presence, error) {
	if c.sumsRanks() {
		keys := 0
		for g := range c.groups {
			keys += c.numAsked(g, tokenLen, hashes.Len()) * len(c.groups[g].ranks)
		}
		if len(answers) != keys {
			return nil, answerCount(len(answers), keys)
		}
	}
	p := c.newPresence(tokenLen, hashes.Len())
	for g := range c.groups {
		rest, err := c.groupPresence(p.Bits[g], g, tokenLen, hashes, answers)
		if err != nil {
			return nil, err
		}
		answers = rest
	}
	return p, nil
}

// newPresence returns a presence without any bits set.
func (c *Coordinator) newPresence(tokenLen int64, numHashes int) *Presence {
	p := &Presence{NumHashes: numHashes, Bits: make([][]uint64, len(c.groups))}
	for g := range c.groups {
		p.Bits[g] = make([]uint64, (c.Positions(g, tokenLen, numHashes)+63)/64)
	}
	return p
}

func (c *Coordinator) numAsked(g int, tokenLen int64, numHashes int) int {
	n := 0
	for from, to := range c.asked(g, tokenLen, numHashes) {
		n += to - from
	}
	return n
}

func answerCount(have, want int) error {
	return fmt.Errorf("%w: the store gave %d for %d keys", ErrAnswerCount, have, want)
}

// groupPresence sets the bits of one group, whose answers are the first ones, and
// returns those of the next.
func (c *Coordinator) groupPresence(bits []uint64, g int, tokenLen int64, hashes netproto.Hashes, answers []int) ([]int, error) {
	ranks, all := len(c.groups[g].ranks), answers
	found, lacking := false, false // what equal hashes could pass on, and what they could change
	for from, to := range c.asked(g, tokenLen, hashes.Len()) {
		for i := from; i < to; i++ {
			n, err := c.countOnes(answers, ranks)
			if err != nil {
				return nil, err
			}
			answers = answers[min(ranks, len(answers)):]
			if n == ranks {
				bits[i/64] |= 1 << (i % 64)
			}
			found = found || n > 0
			lacking = lacking || n < ranks
		}
	}
	positions := c.Positions(g, tokenLen, hashes.Len())
	if found && (lacking || c.numAsked(g, tokenLen, hashes.Len()) < positions) {
		if first := firsts(hashes, c.KeyStride(g), positions); first != nil {
			c.addUp(bits, g, tokenLen, hashes.Len(), all, first, ranks)
		}
	}
	return answers, nil
}

// countOnes counts the ranks that hold a block, given the answers from its first
// on. At 2026-08-17 the count stops at the first rank that lacks it, whole or none,
// and running off the end before that is an error.
func (c *Coordinator) countOnes(answers []int, ranks int) (int, error) {
	n := 0
	if c.sumsRanks() {
		for _, answer := range answers[:min(ranks, len(answers))] {
			if answer == 1 {
				n++
			}
		}
		return n, nil
	}
	for i := range ranks {
		if i >= len(answers) {
			return 0, fmt.Errorf("%w: the store gave too few answers", ErrIndexOutOfRange)
		}
		if answers[i] != 1 {
			return 0, nil
		}
	}
	return ranks, nil
}

// addUp sets the bits of one group anew where hashes are equal: a position counts
// as often as all positions with its hash were found, and is set from least times
// on. first is what firsts returned.
func (c *Coordinator) addUp(bits []uint64, g int, tokenLen int64, numHashes int, answers []int, first []uint32, least int) {
	ranks := len(c.groups[g].ranks)
	counts := make([]int, len(first))
	for from, to := range c.asked(g, tokenLen, numHashes) {
		for i := from; i < to; i++ {
			n, _ := c.countOnes(answers, ranks) // it has not failed before
			counts[first[i]] += n
			answers = answers[min(ranks, len(answers)):]
		}
	}
	clear(bits)
	for i, j := range first {
		if counts[j] >= least {
			bits[i/64] |= 1 << (i % 64)
		}
	}
}

// partlyStored returns the positions whose blocks are stored on at least one of
// their ranks, given answers that presence has accepted.
func (c *Coordinator) partlyStored(tokenLen int64, hashes netproto.Hashes, answers []int) *Presence {
	p := c.newPresence(tokenLen, hashes.Len())
	for g := range c.groups {
		ranks := len(c.groups[g].ranks)
		positions := c.Positions(g, tokenLen, hashes.Len())
		first := firsts(hashes, c.KeyStride(g), positions)
		stored := make([]bool, positions)
		for from, to := range c.asked(g, tokenLen, hashes.Len()) {
			for i := from; i < to; i++ {
				n := min(ranks, len(answers)) // a revision reads on where some are lacking
				if slices.Contains(answers[:n], 1) {
					stored[firstOf(first, i)] = true
				}
				answers = answers[n:]
			}
		}
		for i := range positions {
			if stored[firstOf(first, i)] {
				p.Bits[g][i/64] |= 1 << (i % 64)
			}
		}
	}
	return p
}

// firstOf is first[i] where first is what firsts returned.
func firstOf(first []uint32, i int) int {
	if first == nil {
		return i
	}
	return int(first[i])
}
