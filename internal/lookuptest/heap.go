package lookuptest

import "runtime"

// HeapBytes returns the memory that is in use after a garbage collection.
func HeapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
