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
func raceRead(b []byte) {
	runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(b)), len(b))
}
