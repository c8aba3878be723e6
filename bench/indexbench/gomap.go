package indexbench

import (
	"sync/atomic"
	"unsafe"
)

// goMap is the rival: a Go map from hashes of one length to numbers.
type goMap interface {
	// add gives each of the keys that is not there yet the number behind the last.
	add(keys []byte)
	// sum looks all keys up and adds up their numbers.
	sum(keys []byte) uint64
	// leading looks keys up until one is absent and returns how many are not.
	leading(keys []byte) int
}

// newGoMap returns a map with room for n keys; nil for a length that has none.
func newGoMap(hashLen, n int) goMap {
	switch hashLen {
	case 8:
		return make(typedMap[[8]byte], n)
	case 16:
		return make(typedMap[[16]byte], n)
	case 20:
		return make(typedMap[[20]byte], n)
	case 32:
		return make(typedMap[[32]byte], n)
	}
	return nil
}

// typedMap is a map of keys that are byte arrays.
type typedMap[K comparable] map[K]uint32

// view returns the same bytes as keys, so that looking one up needs no conversion.
// Byte arrays may lie at any address.
func view[K comparable](keys []byte) []K {
	var k K
	return unsafe.Slice((*K)(unsafe.Pointer(unsafe.SliceData(keys))), len(keys)/int(unsafe.Sizeof(k)))
}

func (m typedMap[K]) add(keys []byte) {
	for _, k := range view[K](keys) {
		if _, ok := m[k]; !ok {
			m[k] = uint32(len(m))
		}
	}
}

func (m typedMap[K]) sum(keys []byte) uint64 {
	arrays, sum := view[K](keys), uint64(0)
	for i := range arrays {
		sum += uint64(m[arrays[i]])
	}
	return sum
}

func (m typedMap[K]) leading(keys []byte) int {
	arrays, sum := view[K](keys), uint64(0)
	for i := range arrays {
		number, ok := m[arrays[i]]
		if !ok {
			return i
		}
		sum += uint64(number)
	}
	sink.Store(sum)
	return len(arrays)
}

// sink keeps sums alive that nobody looks at.
var sink atomic.Uint64
