package simd

import (
	"encoding/binary"
	"math/bits"
)

// EqualPrefix returns the number of leading hashes, of hashLen bytes each, that are equal
// in a and b.
//
// Both are arrays of hashes. Hash k of a is compared with hash k of b, up to the number of
// whole hashes in the shorter array. Bytes after the last whole hash of the shorter array
// are not read. EqualPrefix returns 0 if hashLen is 0 or negative.
//
// The cost is proportional to the length of the equal part. Pass as a the array that is less
// likely to be cached, such as the stored hashes: kernels prefetch a long a.
func EqualPrefix(a, b []byte, hashLen int) int {
	n := min(len(a), len(b))
	if hashLen <= 0 || n < hashLen {
		return 0
	}

	// The kernels compare bytes. If all are equal, this is the only division.
	hashes := n / hashLen
	n = hashes * hashLen
	equal := equalBytes(a[:n], b[:n])
	if equal == n {
		return hashes
	}
	return equal / hashLen
}

// equalBytesGeneric returns the number of leading bytes that are equal in a and b, which
// have the same length. It is the portable kernel.
//
// Words are loaded as little-endian: the first byte in memory is then the lowest byte of the
// word, and the count of trailing zeros finds the first difference. On a little-endian
// machine each load compiles to one instruction.
func equalBytesGeneric(a, b []byte) int {
	b = b[:len(a)]
	i := 0

	// Compare four words per branch. The next loop finds the difference within the four.
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
