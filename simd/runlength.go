package simd

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// RunLength16 returns how many leading elements of classes are equal to the first one. It
// returns 0 if classes is empty.
//
// The cost is proportional to the result. A run of one is found without a call.
func RunLength16(classes []uint16) int {
	// Only this check is inlined.
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
	// The code below this loop would double the cost of runs of two and three.
	for i := 2; i < 4; i++ {
		if i == len(classes) || classes[i] != classes[0] {
			return i
		}
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(classes))), 2*len(classes))
	return runBytes(raw) / 2
}

// runBytesGeneric returns the number of leading bytes of b that repeat its first two bytes,
// which are one 16-bit element. The length of b is even and not 0.
//
// The result may end within an element, if only the first byte of that element is equal: the
// caller rounds down. As in equalBytesGeneric words are loaded as little-endian on every
// machine, so that they compare as bytes in memory.
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
