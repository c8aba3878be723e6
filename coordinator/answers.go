package coordinator

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/netproto"
)

// The reference keeps what is stored as a set of (group, hash). So a position is present
// if its hash was found at any position, and up to 0.24.0 the rank counts of equal
// hashes add up. Hash chains do not repeat in practice: this matters to requests made up
// by hand only. Without equal hashes each position stands for itself.

// SumsRanks reports whether the rank counts of equal hashes add up: revisions up to 0.24.0.
func (c *Coordinator) SumsRanks() bool { return c.rules.sumsRanks }

// decodeAnswers returns the presence that the store's answers to all keys of a lookup mean.
func (c *Coordinator) decodeAnswers(tokenLen int64, hashes netproto.Hashes, answers []int) (*Presence, error) {
	if c.SumsRanks() {
		keys := 0
		for g := range c.groups {
			keys += c.numKeyPositions(g, tokenLen, hashes.Len()) * len(c.groups[g].ranks)
		}
		if len(answers) != keys {
			return nil, answerCountError(len(answers), keys)
		}
	}
	p := c.newPresence(tokenLen, hashes.Len())
	for g := range c.groups {
		rest, err := c.decodeGroup(p.Bits[g], g, tokenLen, hashes, answers)
		if err != nil {
			return nil, err
		}
		answers = rest
	}
	return p, nil
}

// newPresence returns a presence of the lookup's size with no bit set.
func (c *Coordinator) newPresence(tokenLen int64, numHashes int) *Presence {
	p := &Presence{NumHashes: numHashes, Bits: make([][]uint64, len(c.groups))}
	for g := range c.groups {
		p.Bits[g] = make([]uint64, (c.ReadablePositions(g, tokenLen, numHashes)+63)/64)
	}
	return p
}

// numKeyPositions returns the number of positions of group g whose keys a lookup checks.
func (c *Coordinator) numKeyPositions(g int, tokenLen int64, numHashes int) int {
	n := 0
	for from, to := range c.keyRuns(g, tokenLen, numHashes) {
		n += to - from
	}
	return n
}

// answerCountError is the error for have answers to want keys.
func answerCountError(have, want int) error {
	return fmt.Errorf("%w: the store gave %d for %d keys", ErrAnswerCount, have, want)
}

// decodeGroup sets the bits of group g, whose answers come first, and returns the answers
// of the groups behind it.
func (c *Coordinator) decodeGroup(bits []uint64, g int, tokenLen int64, hashes netproto.Hashes, answers []int) ([]int, error) {
	ranks, all := len(c.groups[g].ranks), answers
	// Equal hashes change bits only if some rank holds a block, and some position is
	// absent or not checked.
	anyStored, anyAbsent := false, false
	for from, to := range c.keyRuns(g, tokenLen, hashes.Len()) {
		for i := from; i < to; i++ {
			n, err := c.countOnes(answers, ranks)
			if err != nil {
				return nil, err
			}
			answers = answers[min(ranks, len(answers)):]
			if n == ranks {
				bits[i/64] |= 1 << (i % 64)
			}
			anyStored = anyStored || n > 0
			anyAbsent = anyAbsent || n < ranks
		}
	}
	positions := c.ReadablePositions(g, tokenLen, hashes.Len())
	if anyStored && (anyAbsent || c.numKeyPositions(g, tokenLen, hashes.Len()) < positions) {
		if first := firstOccurrences(hashes, c.KeyStride(g), positions); first != nil {
			c.sumEqualHashes(bits, g, tokenLen, hashes.Len(), all, first, ranks)
		}
	}
	return answers, nil
}

// countOnes returns the number of ranks that hold a block. The answers begin with those of
// the block. From 0.25.0 on it returns all ranks or 0: the reference stops at the first
// rank without the block, and fails if the answers end before that.
func (c *Coordinator) countOnes(answers []int, ranks int) (int, error) {
	n := 0
	if c.SumsRanks() {
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

// sumEqualHashes sets the bits of group g anew. The count of a position is the sum of the
// rank counts of all positions with its hash, and its bit is set from least on. first is
// that of firstOccurrences.
func (c *Coordinator) sumEqualHashes(bits []uint64, g int, tokenLen int64, numHashes int, answers []int, first []uint32, least int) {
	ranks := len(c.groups[g].ranks)
	counts := make([]int, len(first))
	for from, to := range c.keyRuns(g, tokenLen, numHashes) {
		for i := from; i < to; i++ {
			n, _ := c.countOnes(answers, ranks) // cannot fail: decodeGroup has counted them
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

// presentOnAnyRank returns the positions whose blocks are stored on at least one of their
// ranks. decodeAnswers must have accepted the answers.
func (c *Coordinator) presentOnAnyRank(tokenLen int64, hashes netproto.Hashes, answers []int) *Presence {
	p := c.newPresence(tokenLen, hashes.Len())
	for g := range c.groups {
		ranks := len(c.groups[g].ranks)
		positions := c.ReadablePositions(g, tokenLen, hashes.Len())
		first := firstOccurrences(hashes, c.KeyStride(g), positions)
		stored := make([]bool, positions)
		for from, to := range c.keyRuns(g, tokenLen, hashes.Len()) {
			for i := from; i < to; i++ {
				n := min(ranks, len(answers)) // from 0.25.0 on the last ones may be missing
				if slices.Contains(answers[:n], 1) {
					stored[firstOccurrence(first, i)] = true
				}
				answers = answers[n:]
			}
		}
		for i := range positions {
			if stored[firstOccurrence(first, i)] {
				p.Bits[g][i/64] |= 1 << (i % 64)
			}
		}
	}
	return p
}

// firstOccurrence returns the first position with the hash of position i. first is that
// of firstOccurrences, which is nil if all hashes differ.
func firstOccurrence(first []uint32, i int) int {
	if first == nil {
		return i
	}
	return int(first[i])
}
