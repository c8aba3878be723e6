//go:build race

package simd

import (
	"runtime"
	"unsafe"
)

// raceRead tells the race detector that b is read. The detector instruments Go code only;
// what assembly reads has to be announced.
//
// The announcement covers all of b, even if the kernel stops at an early difference: the
// rule is that nobody writes to the arguments, not to the part that was reached this time.
func raceRead[T any](b []T) {
	runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(b)), len(b)*int(unsafe.Sizeof(b[0])))
}

// raceReadStrided tells the race detector that n hashes are read, each step bytes behind
// the one before it. What lies between them may be written to.
func raceReadStrided(b []byte, step, hashLen, n int) {
	for k := range n {
		raceRead(b[k*step:][:hashLen])
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
