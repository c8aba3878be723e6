package diagnosis

import (
	"math/bits"
	"slices"
)

// promptLength is how long a prompt is. It shows what a sample of keys does not: how many tokens a
// hash stands for.
type promptLength struct {
	tokens    int64
	numHashes int
	hashLen   int // in bytes
}

// fitsBlockSize reports whether a lookup has as many hashes as its tokens should have.
//
// Engines send at least the hashes of all tokens that they ask for. They may also send
// hashes of any number of later tokens, as in the middle of an answer. So too many hashes
// mean a smaller block size only if there are about 2, 4 or 8 times as many.
func (c *comparer) fitsBlockSize(tokens int64, numHashes int) bool {
	size := int64(c.pool.HashBlockSize)
	want, have, slack := tokens/size, int64(numHashes), max(1, c.rules.Alignment()/size)
	if have == 0 || want < 4 {
		return true
	}
	for times := int64(2); times*want <= have && times <= size; times *= 2 {
		if have < times*(want+slack) {
			return false
		}
	}
	return have >= want
}

// compareBlockSize compares the tokens that a hash stands for with those configured.
func (c *comparer) compareBlockSize(p promptLength, f *Findings) (fits bool) {
	if c.fitsBlockSize(p.tokens, p.numHashes) {
		return true
	}
	guess := int64(1) << bits.Len64(uint64(p.tokens/int64(p.numHashes+1))) // block sizes are powers of two
	if want := p.tokens / int64(c.pool.HashBlockSize); int64(p.numHashes) < want && p.tokens/guess != int64(p.numHashes) {
		f.addProblem("a prompt of %d tokens has %d hashes, and with pool.hash_block_size %d it should have %d: give all of them, or compare pool.hash_block_size with the engine's",
			p.tokens, p.numHashes, c.pool.HashBlockSize, want)
		return false
	}
	f.addProblem("a prompt of %d tokens has %d hashes, one for every %d tokens, and pool.hash_block_size is %d: set it to the engine's",
		p.tokens, p.numHashes, guess, c.pool.HashBlockSize)
	return false
}

// compareHashLength compares the length of a prompt's hashes with those of the pool's keys.
func (p promptLength) compareHashLength(poolKeys keySample, f *Findings) (fits bool) {
	lengths := poolKeys.hashLengths()
	if len(lengths) == 0 || slices.Contains(lengths, p.hashLen) {
		return true
	}
	f.addProblem("a prompt's hashes have %d bytes, and those in the store %s: have all engines of this pool use one hash function (vLLM: --prefix-caching-hash-algo)",
		p.hashLen, joinNumbers(lengths))
	return false
}
