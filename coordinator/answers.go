package coordinator

import (
	"fmt"
	"slices"

	"github.com/hitline/hitline/netproto"
)

// decodeAnswers returns the presence that the store's answers to all keys of a lookup mean.
func (c *Coordinator) decodeAnswers(tokenLen int64, hashes netproto.Hashes, answers []int) (*Presence, error) {
	if c.rules.exactAnswers {
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
		p.Bits[g] = make([]uint64, (c.Positions(g, tokenLen, numHashes)+63)/64)
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
	ranks := len(c.groups[g].ranks)
	for from, to := range c.keyRuns(g, tokenLen, hashes.Len()) {
		for i := from; i < to; i++ {
			complete, err := onAllRanks(answers, ranks)
			if err != nil {
				return nil, err
			}
			answers = answers[min(ranks, len(answers)):]
			if complete {
				bits[i/64] |= 1 << (i % 64)
			}
		}
	}
	return answers, nil
}

// onAllRanks reports whether all ranks hold a block. The answers begin with those of the
// block. It fails if they end before one that is not 1.
func onAllRanks(answers []int, ranks int) (bool, error) {
	for i := range ranks {
		if i >= len(answers) {
			return false, fmt.Errorf("%w: the store gave too few answers", ErrIndexOutOfRange)
		}
		if answers[i] != 1 {
			return false, nil
		}
	}
	return true, nil
}

// presentOnAnyRank returns the positions whose blocks are stored on at least one of their
// ranks. decodeAnswers must have accepted the answers.
func (c *Coordinator) presentOnAnyRank(tokenLen int64, hashes netproto.Hashes, answers []int) *Presence {
	p := c.newPresence(tokenLen, hashes.Len())
	for g := range c.groups {
		ranks := len(c.groups[g].ranks)
		for from, to := range c.keyRuns(g, tokenLen, hashes.Len()) {
			for i := from; i < to; i++ {
				n := min(ranks, len(answers)) // from 0.25.0 on the last ones may be missing
				if slices.Contains(answers[:n], 1) {
					p.Bits[g][i/64] |= 1 << (i % 64)
				}
				answers = answers[n:]
			}
		}
	}
	return p
}
