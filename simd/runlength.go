package simd

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// RunLength16 returns how many leading elements of classes are equal to the first one: 0
// if there is none, 1 if the second one is different.
//
// The cost is proportional to the result, and a run of one costs no call.
func RunLength16(classes []uint16) int {
	// This much is inlined.
	if len(classes) < 2 || classes[0] != classes[1] {
		return min(len(classes), 1)
	}
	return runLength16(classes)
}

// runLength16 is RunLength16 for two elements or more.
//
//go:noinline
func runLength16(classes []uint16) int {
	raceRead(classes)
	// Runs of two and three would cost twice as much with all that comes behind.
	for i := 2; i < 4; i++ {
		if i == len(classes) || classes[i] != classes[0] {
			return i
		}
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(classes))), 2*len(classes))
	return runBytes(raw) / 2
}

// runBytesGeneric returns the number of leading bytes of b before the first one that is not
// what the first two bytes, an element of 16 bits, have in its place; len(b) if there is
// none. The length of b is even and not 0.
//
// The result may end within an element, as the first byte of one can be equal alone; the
// caller drops the rest of the division. As in equalBytesGeneric words are little-endian,
// whatever the machine: they are compared as bytes in memory.
func runBytesGeneric(b []byte) int {
	first := uint64(binary.LittleEndian.Uint16(b)) * 0x0001_0001_0001_0001
	i := 0
	for ; len(b)-i >= 32; i += 32 {
		x := b[i : i+32 : i+32]
		diff := binary.LittleEndian.Uint64(x) ^ first
		diff |= binary.LittleEndian.Uint64(x[8:]) ^ first
		diff |= binary.LittleEndian.Uint64(x[16:]) ^ first
		diff |= binary.LittleEndian.Uint64(x[24:]) ^ first
		if diff != 0 {
			break
		}
	}
	for ; len(b)-i >= 8; i += 8 {
		if diff := binary.LittleEndian.Uint64(b[i:]) ^ first; diff != 0 {
			return i + bits.TrailingZeros64(diff)/8
		}
	}
	for ; i < len(b); i += 2 {
		if binary.LittleEndian.Uint16(b[i:]) != uint16(first) {
			return i
		}
	}
	return i
}
