package simd

import (
	"encoding/binary"
	"math/bits"
)

// EqualPrefix returns the number of leading hashes, of hashLen bytes each, that are equal
// in a and b.
//
// Both are arrays of hashes, and hash k of one is compared with hash k of the other, up to
// the number of whole hashes in the shorter one: that number is the result if there is no
// difference. Bytes behind the last whole hash of the shorter one are not read. The result
// is 0 if hashLen is 0 or negative.
//
// The cost is proportional to the length of the equal part. The argument that is less
// likely to be in a cache, such as the stored hashes, should be a: a long one is fetched
// ahead.
func EqualPrefix(a, b []byte, hashLen int) int {
	n := min(len(a), len(b))
	if hashLen <= 0 || n < hashLen {
		return 0
	}

	// The kernels compare bytes. One division tells how many, and if they are all equal it
	// is the only one.
	hashes := n / hashLen
	n = hashes * hashLen
	raceRead(a[:n])
	raceRead(b[:n])
	equal := equalBytes(a[:n], b[:n])
	if equal == n {
		return hashes
	}
	return equal / hashLen
}

// equalBytesGeneric returns the number of leading bytes that are equal in a and b, which
// have one length. It is the portable kernel, and the one that the others are tested
// against.
//
// Words are loaded as little-endian, so that the first byte in memory is the lowest one of
// the word and the count of trailing zeros finds it. The compiler makes one plain load of
// each on a little-endian machine.
func equalBytesGeneric(a, b []byte) int {
	b = b[:len(a)]
	i := 0

	// Four words a turn with one branch for all of them. The turn in which they differ is
	// left to the next loop, which looks closer.
	for ; len(a)-i >= 32; i += 32 {
		x, y := a[i:i+32:i+32], b[i:i+32:i+32]
		diff := binary.LittleEndian.Uint64(x) ^ binary.LittleEndian.Uint64(y)
		diff |= binary.LittleEndian.Uint64(x[8:]) ^ binary.LittleEndian.Uint64(y[8:])
		diff |= binary.LittleEndian.Uint64(x[16:]) ^ binary.LittleEndian.Uint64(y[16:])
		diff |= binary.LittleEndian.Uint64(x[24:]) ^ binary.LittleEndian.Uint64(y[24:])
		if diff != 0 {
			break
		}
	}
	for ; len(a)-i >= 8; i += 8 {
		diff := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:])
		if diff != 0 {
			return i + bits.TrailingZeros64(diff)/8
		}
	}
	for ; i < len(a); i++ {
		if a[i] != b[i] {
			return i
		}
	}
	return i
}
