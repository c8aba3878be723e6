package index

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
)

// hasher hashes keys under a secret of its own: NH of RFC 4418 (UMAC) with words of 64
// bits, the sum of products of words to which secret words were added. Two different
// keys of one length have equal sums, of 128 bits, for at most one secret in 2^64,
// whoever chose them. The sum is then folded to 64 bits by an exclusive or and one more
// multiplication, so that the bits that the table works with depend on all of it. Of the
// folded hash nothing is proved: two keys agree about as often as random numbers of 64
// bits do. Presence does not rest on it: keys are compared whole.
type hasher struct {
	words  [maxHashLen / 8]uint64
	finish uint64
}

// newHasher draws the secret from the runtime's source of seeds.
func newHasher() hasher {
	var h hasher
	for i := range h.words {
		h.words[i] = maphash.String(maphash.MakeSeed(), "")
	}
	h.finish = maphash.String(maphash.MakeSeed(), "") | 1
	return h
}

// sum32 hashes a key of 32 bytes.
func (h *hasher) sum32(key *[32]byte) uint64 {
	hi0, lo0 := bits.Mul64(binary.LittleEndian.Uint64(key[0:])+h.words[0], binary.LittleEndian.Uint64(key[8:])+h.words[1])
	hi1, lo1 := bits.Mul64(binary.LittleEndian.Uint64(key[16:])+h.words[2], binary.LittleEndian.Uint64(key[24:])+h.words[3])
	lo, carry := bits.Add64(lo0, lo1, 0)
	return h.mix(hi0+hi1+carry, lo)
}

// sum hashes a key of any length. What is missing in the last 16 bytes is zero;
// keys of different lengths may agree, and do not compare equal.
func (h *hasher) sum(key []byte) uint64 {
	if len(key) == 32 {
		return h.sum32((*[32]byte)(key))
	}
	var hi, lo, carry uint64
	for i := 0; len(key) > 0; i += 2 {
		var block [16]byte
		key = key[copy(block[:], key):]
		p, q := bits.Mul64(binary.LittleEndian.Uint64(block[0:])+h.words[i], binary.LittleEndian.Uint64(block[8:])+h.words[i+1])
		lo, carry = bits.Add64(lo, q, 0)
		hi += p + carry
	}
	return h.mix(hi, lo)
}

func (h *hasher) mix(hi, lo uint64) uint64 {
	p, q := bits.Mul64(hi^lo, h.finish)
	return p ^ q
}
