package diagnosis

import (
	"math/bits"
	"slices"

	"github.com/hitline/hitline/netproto"
)

// promptPrefix is the length of a prompt and its first hashes. It shows what a sample of
// keys does not: how many tokens a hash stands for, and which hashes of a chain are stored.
type promptPrefix struct {
	tokens    int64
	numHashes int    // of the whole prompt
	hashLen   int    // in bytes
	hashes    []byte // the first of them, at most maxPromptHashes
}

const (
	// maxPromptHashes bounds the hashes of a prompt that are looked for in the store.
	maxPromptHashes = 256
	// maxGroupKeys bounds the keys of one group that these hashes make, one for each rank.
	maxGroupKeys = 8192
)

// newPromptPrefix copies the first hashes of a prompt that came with numHashes of them.
func newPromptPrefix(tokens int64, numHashes int, hashes netproto.Hashes) promptPrefix {
	p := promptPrefix{tokens: tokens, numHashes: numHashes, hashLen: hashes.HashLen()}
	p.hashes = slices.Clone(hashes.Bytes()[:min(hashes.Len(), maxPromptHashes)*p.hashLen])
	return p
}

// hash returns hash i of the prefix.
func (p promptPrefix) hash(i int) []byte { return p.hashes[i*p.hashLen : (i+1)*p.hashLen] }

// len returns how many hashes the prefix has.
func (p promptPrefix) len() int { return len(p.hashes) / max(1, p.hashLen) }

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
func (c *comparer) compareBlockSize(p promptPrefix, f *Findings) (fits bool) {
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
func (p promptPrefix) compareHashLength(poolKeys keySample, f *Findings) (fits bool) {
	lengths := poolKeys.hashLengths()
	if len(lengths) == 0 || slices.Contains(lengths, p.hashLen) {
		return true
	}
	f.addProblem("a prompt's hashes have %d bytes, and those in the store %s: have all engines of this pool use one hash function (vLLM: --prefix-caching-hash-algo)",
		p.hashLen, joinNumbers(lengths))
	return false
}
