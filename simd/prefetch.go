package simd

import "unsafe"

// Prefetch starts to fetch the cache line of each address, and returns before they arrive.
// It reads lines but nothing at the addresses, so any address is allowed. It is for cache
// lines that are used some hundred instructions later. The portable version does nothing.
func Prefetch[T any](lines []*T) {
	if len(lines) > 0 {
		prefetch((**byte)(unsafe.Pointer(unsafe.SliceData(lines))), len(lines))
	}
}
