package coordinator

import (
	"fmt"
	"iter"

	"github.com/hitline/hitline/netproto"
)

// TokenLen returns the tokens that a lookup of numTokens is about. Revision
// 2026-06-20 refuses a number that is no multiple of the alignment with
// ErrPrecondition; 2026-08-17 rounds it down. Negative numbers count as 0.
func (c *Coordinator) TokenLen(numTokens int64) (int64, error) {
	numTokens = max(0, numTokens)
	switch c.pool.Revision {
	case Revision20260817:
		return floorTo(numTokens, c.align), nil
	case Revision20260604:
		return 0, fmt.Errorf("%w: the worker's lookup of revision %s, whose keys no other revision shares", ErrNotImplemented, c.pool.Revision)
	}
	if err := c.checkAligned(numTokens); err != nil {
		return 0, fmt.Errorf("%w, which pool.revision %s wants: set pool.revision to %s if the engine is vLLM 0.27 or newer", err, c.pool.Revision, Revision20260817)
	}
	return numTokens, nil
}

// Positions returns how many of the first presence positions of group g a
// lookup covers, given TokenLen's tokens and the number of raw hashes. Of
// those it asks the ones that are true in KeyMask(g).
func (c *Coordinator) Positions(g int, tokenLen int64, numHashes int) int {
	stride := int64(c.KeyStride(g))
	covered := ceilDiv(max(0, tokenLen), stride*int64(c.pool.HashBlockSize))
	return int(min(covered, int64(max(0, numHashes))/stride))
}

// asksAny tells whether a lookup would ask for at least one position.
func (c *Coordinator) asksAny(tokenLen int64, numHashes int) bool {
	for g := range c.groups {
		if first, _, ok := c.KeyMask(g).Next(0); ok && first < int64(c.Positions(g, tokenLen, numHashes)) {
			return true
		}
	}
	return false
}

// Answer returns the worker's answer in tokens to a lookup of numTokens, given
// what is stored: p must have bits only at positions that the lookup asks (see
// Positions) and, to agree with Lookup in every case, at others whose hash equals
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
	if err != nil {
		return 0, err
	}
	return c.leaveOne(p, hit, numTokens, s)
}

// leaveOne finds again where a hit of all tokens would leave none to compute.
func (c *Coordinator) leaveOne(p *Presence, hit, numTokens int64, s *Scratch) (int64, error) {
	if c.pool.Revision != Revision20260817 || hit < numTokens {
		return hit, nil
	}
	return c.FindHit(p, floorTo(numTokens-1, c.align), true, s)
}

// Lookup answers a lookup of numTokens over an external store. It calls Exists at most
// once, with the reference's keys in its order. If that or Reserve fails the answer is 0
// without an error, as in the reference; a store that wants to know of its failure
// remembers it. A wrong number of answers is ErrAnswerCount. At revision 2026-08-17 too
// many are ignored, and too few are ErrIndexOutOfRange if the missing one is reached.
// (Reference: MooncakeStoreWorker.lookup.)
func (c *Coordinator) Lookup(numTokens int64, hashes netproto.Hashes, store KeyStore) (int64, error) {
	if hashes.Len() == 0 || numTokens <= 0 {
		return 0, nil
	}
	tokenLen, err := c.TokenLen(numTokens)
	if err != nil {
		return 0, err
	}
	b := c.countKeys(tokenLen, hashes)
	if b.count == 0 || store.Reserve(b.memory()) != nil {
		return 0, nil //nolint:nilerr // a store that is not asked holds nothing
	}
	answers, err := store.Exists(c.buildKeys(&b, tokenLen, hashes))
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
// asks the store for, in the reference's order: by group, position, rank. They
// are parts of one string.
func (c *Coordinator) LookupKeys(tokenLen int64, hashes netproto.Hashes) []string {
	b := c.countKeys(tokenLen, hashes)
	return c.buildKeys(&b, tokenLen, hashes)
}

// countKeys counts the keys of a lookup.
func (c *Coordinator) countKeys(tokenLen int64, hashes netproto.Hashes) (b keyBuilder) {
	for g := range c.groups {
		n := c.numAsked(g, tokenLen, hashes.Len())
		b.need(c.groups[g].prefixes, n, hashes.HashLen())
	}
	return b
}

// buildKeys builds the keys that countKeys has counted.
func (c *Coordinator) buildKeys(b *keyBuilder, tokenLen int64, hashes netproto.Hashes) []string {
	b.room()
	for g := range c.groups {
		prefixes, stride := c.groups[g].prefixes, c.KeyStride(g)
		for from, to := range c.asked(g, tokenLen, hashes.Len()) {
			for i := from; i < to; i++ {
				b.add(prefixes, hashes.At(i*stride+stride-1))
			}
		}
	}
	return b.keys
}

// asked iterates over the runs of positions of group g that a lookup asks, as
// half-open ranges.
func (c *Coordinator) asked(g int, tokenLen int64, numHashes int) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		mask := c.KeyMask(g)
		positions := int64(c.Positions(g, tokenLen, numHashes))
		for at := int64(0); at < positions; {
			start, end, ok := mask.Next(at)
			if !ok || start >= positions {
				return
			}
			at = min(end, positions)
			if !yield(int(start), int(at)) {
				return
			}
		}
	}
}
