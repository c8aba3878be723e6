package simd

import "encoding/binary"

// EqualPrefixStrided returns the number of leading hashes, of hashLen bytes each, that are
// equal in a and b, where the hashes of one array do not lie end to end: hash k of a begins
// at k*aStep, hash k of b at k*bStep.
//
// It is how a group whose block is several hash blocks long compares: it owns every k-th
// hash of a request, which are all there, and stores only those.
//
// Hashes are compared up to the number of whole hashes in the one that has fewer; a hash is
// whole if its hashLen bytes are in the slice, whatever is missing behind them. Bytes
// between two hashes, and behind the last whole one, are not read. The result is 0 if
// hashLen is not positive or a step is less than hashLen.
func EqualPrefixStrided(a []byte, aStep int, b []byte, bStep int, hashLen int) int {
	if aStep == hashLen && bStep == hashLen {
		return EqualPrefix(a, b, hashLen)
	}
	n := min(len(a), len(b))
	if hashLen <= 0 || n < hashLen || aStep < hashLen || bStep < hashLen {
		return 0
	}
	n = min((len(a)-hashLen)/aStep, (len(b)-hashLen)/bStep) + 1
	raceReadStrided(a, aStep, hashLen, n)
	raceReadStrided(b, bStep, hashLen, n)
	return equalStrided(a, aStep, b, bStep, hashLen, n)
}

// equalStridedGeneric compares n hashes, all of which are whole in both arrays.
func equalStridedGeneric(a []byte, aStep int, b []byte, bStep int, hashLen, n int) int {
	if hashLen == 32 {
		return equalStrided32Generic(a, aStep, b, bStep, n)
	}
	for k := range n {
		x, y := a[k*aStep:][:hashLen], b[k*bStep:][:hashLen]
		if string(x) != string(y) {
			return k
		}
	}
	return n
}

// equalStrided32Generic is equalStridedGeneric for the usual hash.
func equalStrided32Generic(a []byte, aStep int, b []byte, bStep int, n int) int {
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
		i += aStep
		j += bStep
	}
	return n
}
