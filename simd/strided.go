package simd

import "encoding/binary"

// EqualPrefixStrided is EqualPrefix for hashes with gaps between them: hash k of a begins at
// byte k*aStride, hash k of b at byte k*bStride.
//
// It serves groups whose block is k hash blocks long: they store every k-th hash of a chain,
// while a request has all of them.
//
// Hashes are compared up to the number of whole hashes in the array that has fewer. The last
// hash is whole if its hashLen bytes are in the slice, even without a gap after it. Bytes
// between hashes, and after the last whole hash, are not read. EqualPrefixStrided returns 0
// if hashLen is not positive, or if a stride is less than hashLen.
func EqualPrefixStrided(a []byte, aStride int, b []byte, bStride int, hashLen int) int {
	if aStride == hashLen && bStride == hashLen {
		return EqualPrefix(a, b, hashLen)
	}
	n := min(len(a), len(b))
	if hashLen <= 0 || n < hashLen || aStride < hashLen || bStride < hashLen {
		return 0
	}
	n = min((len(a)-hashLen)/aStride, (len(b)-hashLen)/bStride) + 1
	raceReadStrided(a, aStride, hashLen, n)
	raceReadStrided(b, bStride, hashLen, n)
	return equalStrided(a, aStride, b, bStride, hashLen, n)
}

// equalStridedGeneric returns how many of the first n hashes are equal. All n are whole in
// both arrays.
func equalStridedGeneric(a []byte, aStride int, b []byte, bStride int, hashLen, n int) int {
	if hashLen == 32 {
		return equalStrided32Generic(a, aStride, b, bStride, n)
	}
	for k := range n {
		x, y := a[k*aStride:][:hashLen], b[k*bStride:][:hashLen]
		if string(x) != string(y) {
			return k
		}
	}
	return n
}

// equalStrided32Generic is equalStridedGeneric for hashes of 32 bytes, the usual length.
func equalStrided32Generic(a []byte, aStride int, b []byte, bStride int, n int) int {
	i, j := 0, 0
	for k := range n {
		x, y := a[i:i+32:i+32], b[j:j+32:j+32]
		diff := binary.LittleEndian.Uint64(x) ^ binary.LittleEndian.Uint64(y)
		diff |= binary.LittleEndian.Uint64(x[8:]) ^ binary.LittleEndian.Uint64(y[8:])
		diff |= binary.LittleEndian.Uint64(x[16:]) ^ binary.LittleEndian.Uint64(y[16:])
		diff |= binary.LittleEndian.Uint64(x[24:]) ^ binary.LittleEndian.Uint64(y[24:])
		if diff != 0 {
			return k
		}
		i += aStride
		j += bStride
	}
	return n
}
