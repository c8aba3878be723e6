//go:build race

package simd

import (
	"runtime"
	"unsafe"
)

// raceRead tells the race detector that b is read. The detector instruments Go code only, so
// reads by assembly must be announced.
//
// It announces all of b, even if the kernel stops at an early difference: callers must not
// write to any part of the arguments.
func raceRead[T any](b []T) {
	runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(b)), len(b)*int(unsafe.Sizeof(b[0])))
}

// raceReadStrided tells the race detector that n hashes are read, stride bytes apart. The
// bytes between them may be written.
func raceReadStrided(b []byte, stride, hashLen, n int) {
	for k := range n {
		raceRead(b[k*stride:][:hashLen])
	}
}

// raceMatchTags tells the race detector what MatchTags reads and writes.
func raceMatchTags(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {
	runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(masks)), 2*len(masks))
	raceRead(buckets)
	raceRead(tags)
	for _, b := range buckets {
		raceRead(b[:])
	}
}
