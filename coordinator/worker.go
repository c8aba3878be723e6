package coordinator

import (
	"fmt"

	"github.com/hitline/hitline/netproto"
)

// TokenLen returns the tokens that a lookup of numTokens is about. Revision
// 2026-06-20 refuses an unaligned number with ErrPrecondition; 2026-08-17
// rounds it down to the alignment. Negative numbers count as 0.
func (c *Coordinator) TokenLen(numTokens int64) (int64, error) {
	numTokens = max(0, numTokens)
	switch c.pool.Revision {
	case Revision20260817:
		return floorTo(numTokens, c.align), nil
	case Revision20260604:
		return 0, fmt.Errorf("%w: the worker's lookup of revision %s, whose keys no other revision shares", ErrNotImplemented, c.pool.Revision)
	}
	return numTokens, c.checkAligned(numTokens)
}

// Positions returns how many of the first presence positions of group g a
// lookup covers, given TokenLen's tokens and the number of raw hashes. Of
// those it asks the ones that are true in AskMask(g).
func (c *Coordinator) Positions(g int, tokenLen int64, numHashes int) int {
	stride := int64(c.AskStride(g))
	covered := ceilDiv(max(0, tokenLen), stride*int64(c.pool.HashBlockSize))
	return int(min(covered, int64(max(0, numHashes))/stride))
}

// asksAny tells whether a lookup would ask for at least one position.
func (c *Coordinator) asksAny(tokenLen int64, numHashes int) bool {
	for g := range c.groups {
		if first, _, ok := c.AskMask(g).Next(0); ok && first < int64(c.Positions(g, tokenLen, numHashes)) {
			return true
		}
	}
	return false
}

// Answer returns the worker's answer in tokens to a lookup of numTokens, given
// what is stored: p must have bits only at positions that the lookup asks (see
// Positions) and, to agree with Ask in every case, at others whose hash equals
// that of a stored one. It differs from FindHit by what surrounds the finding:
// no hashes, no tokens or nothing to ask is 0, and at revision 2026-08-17 a hit
// of all tokens is found again so that one token is left to compute.
// (Reference: MooncakeStoreWorker.lookup.)
func (c *Coordinator) Answer(p *Presence, numTokens int64, s *Scratch) (int64, error) {
	if p.NumHashes <= 0 || numTokens <= 0 {
		return 0, nil
	}
	tokenLen, err := c.TokenLen(numTokens)
	if err != nil || !c.asksAny(tokenLen, p.NumHashes) {
		return 0, err
	}
	return c.answer(p, tokenLen, numTokens, s)
}

func (c *Coordinator) answer(p *Presence, tokenLen, numTokens int64, s *Scratch) (int64, error) {
	hit, err := c.FindHit(p, tokenLen, true, s)
	if err != nil || c.pool.Revision != Revision20260817 || hit < numTokens {
		return hit, err
	}
	return c.FindHit(p, floorTo(numTokens-1, c.align), true, s)
}

// Ask answers a lookup of numTokens over an external store. exists is called at
// most once, with the reference's keys in its order, and gives one number a
// key: 1 is present and anything else is absent. If it fails the answer is 0
// without an error, as in the reference: whoever wants to know of the failure
// notes it in exists. A wrong number of answers is ErrAnswerCount; at revision
// 2026-08-17 too many are ignored and too few are ErrIndexOutOfRange, if the
// missing one is reached. (Reference: MooncakeStoreWorker.lookup.)
func (c *Coordinator) Ask(numTokens int64, hashes netproto.Hashes, exists func(keys []string) ([]int, error)) (int64, error) {
	if hashes.Len() == 0 || numTokens <= 0 {
		return 0, nil
	}
	tokenLen, err := c.TokenLen(numTokens)
	if err != nil {
		return 0, err
	}
	keys := c.LookupKeys(tokenLen, hashes)
	if len(keys) == 0 {
		return 0, nil
	}
	answers, err := exists(keys)
	if err != nil {
		return 0, nil //nolint:nilerr // a store that fails holds nothing
	}
	presence, err := c.presence(tokenLen, hashes, answers)
	if err != nil {
		return 0, err
	}
	return c.answer(presence, tokenLen, numTokens, new(Scratch))
}

// LookupKeys returns the keys that a lookup of tokenLen tokens (a TokenLen)
// asks the store for, in the reference's order: by group, position, rank.
func (c *Coordinator) LookupKeys(tokenLen int64, hashes netproto.Hashes) []string {
	total := 0 // neither visit fails
	_ = c.eachAsked(tokenLen, hashes, func(g int, _ []byte) error {
		total += len(c.groups[g].ranks)
		return nil
	})
	keys := make([]string, 0, total)
	var key []byte
	_ = c.eachAsked(tokenLen, hashes, func(g int, hash []byte) error {
		for rank := range c.groups[g].ranks {
			key = c.AppendKey(key[:0], g, rank, hash)
			keys = append(keys, string(key))
		}
		return nil
	})
	return keys
}

// eachAsked visits the positions that a lookup asks, in the order of the keys,
// until visit fails.
func (c *Coordinator) eachAsked(tokenLen int64, hashes netproto.Hashes, visit func(g int, hash []byte) error) error {
	for g := range c.groups {
		stride := c.AskStride(g)
		positions := int64(c.Positions(g, tokenLen, hashes.Len()))
		for start, end := range c.AskMask(g).Runs() {
			for i := start; i < min(end, positions); i++ {
				if err := visit(g, hashes.At(int(i)*stride+stride-1)); err != nil {
					return err
				}
			}
			if end >= positions {
				break
			}
		}
	}
	return nil
}

// presence turns the store's answers into bits. What is stored is a set of
// (group, hash): a position counts as present wherever its hash was found to
// be, asked there or not. Hash chains do not repeat in practice, so only
// requests made up by hand notice.
func (c *Coordinator) presence(tokenLen int64, hashes netproto.Hashes, answers []int) (*Presence, error) {
	stored, err := c.storedHashes(tokenLen, hashes, answers)
	if err != nil {
		return nil, err
	}
	return c.bitsOf(tokenLen, hashes, stored), nil
}

// bitsOf sets the bits of the positions whose hashes are in the groups' sets.
func (c *Coordinator) bitsOf(tokenLen int64, hashes netproto.Hashes, sets []map[string]bool) *Presence {
	p := &Presence{NumHashes: hashes.Len(), Bits: make([][]uint64, len(c.groups))}
	for g := range c.groups {
		stride := c.AskStride(g)
		positions := c.Positions(g, tokenLen, hashes.Len())
		p.Bits[g] = make([]uint64, (positions+63)/64)
		for i := range positions {
			if sets[g][string(hashes.At(i*stride+stride-1))] {
				p.Bits[g][i/64] |= 1 << (i % 64)
			}
		}
	}
	return p
}

// storedHashes returns, for each group, the hashes that are stored on every
// required rank.
func (c *Coordinator) storedHashes(tokenLen int64, hashes netproto.Hashes, answers []int) ([]map[string]bool, error) {
	stored := make([]map[string]bool, len(c.groups))
	counts := make([]map[string]int, len(c.groups))
	for g := range c.groups {
		stored[g], counts[g] = map[string]bool{}, map[string]int{}
	}
	sums := c.pool.Revision != Revision20260817
	at := 0
	err := c.eachAsked(tokenLen, hashes, func(g int, hash []byte) error {
		ranks := len(c.groups[g].ranks)
		next := at + ranks
		if sums {
			if next > len(answers) {
				return fmt.Errorf("%w: the store gave only %d", ErrAnswerCount, len(answers))
			}
			// Counts of equal hashes add up, and half-stored ones with them.
			counts[g][string(hash)] += ones(answers[at:next])
			if counts[g][string(hash)] >= ranks {
				stored[g][string(hash)] = true
			}
			at = next
			return nil
		}
		complete, err := allOnes(answers, at, next)
		if complete {
			stored[g][string(hash)] = true
		}
		at = next
		return err
	})
	if err == nil && sums && at != len(answers) {
		err = fmt.Errorf("%w: the store gave %d for %d keys", ErrAnswerCount, len(answers), at)
	}
	return stored, err
}

func ones(answers []int) int {
	n := 0
	for _, answer := range answers {
		if answer == 1 {
			n++
		}
	}
	return n
}

// allOnes reads answers[from:to] until one is not 1. Running off the end before
// that is an error.
func allOnes(answers []int, from, to int) (bool, error) {
	for i := from; i < to; i++ {
		if i >= len(answers) {
			return false, fmt.Errorf("%w: the store gave only %d answers", ErrIndexOutOfRange, len(answers))
		}
		if answers[i] != 1 {
			return false, nil
		}
	}
	return true, nil
}
