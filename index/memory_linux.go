package index

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapHuge maps size bytes, a multiple of hugePage, on a boundary of huge pages
// and asks for such pages. It returns nil if the system gives no memory.
func mapHuge(size int) []byte {
	wide := uintptr(size) + hugePage
	p, err := unix.MmapPtr(-1, 0, nil, wide, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	skip := -uintptr(p) % hugePage
	start := unsafe.Add(p, skip)
	if skip > 0 {
		_ = unix.MunmapPtr(p, skip)
	}
	if behind := hugePage - skip; behind > 0 {
		_ = unix.MunmapPtr(unsafe.Add(start, size), behind)
	}
	b := unsafe.Slice((*byte)(start), size)
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // an advice; without, all works, slower
	return b
}

func unmap(b []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(cap(b)))
}
