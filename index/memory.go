package index

import "runtime"

// Memory of the log and of the table is allocated in slabs. Slabs of a huge page
// or more are mapped outside of the Go heap, on huge pages where the system gives
// them: a lookup in no particular order is bound by address translation
// otherwise. They go back to the system when they are released, at the latest
// when the index is garbage.

// hugePage is the size of a huge page where there are any, smallPage that of others.
const (
	hugePage  = 2 << 20
	smallPage = 4 << 10
)

// memory is the bytes of one slab.
type memory struct {
	bytes   []byte // zero at first
	mapped  []byte // the mapping, nil if it is of the Go heap
	cleanup runtime.Cleanup
}

// memorySize is what a slab of n bytes takes.
func memorySize(n int64) int64 {
	const goPage = 8 << 10 // the Go heap rounds large objects up to whole pages
	if n >= hugePage {
		return (n + hugePage - 1) &^ (hugePage - 1)
	}
	return (n + goPage - 1) &^ (goPage - 1)
}

// newMemory allocates a slab of n bytes.
func newMemory(n int) *memory {
	if n >= hugePage {
		size := int(memorySize(int64(n)))
		if b := mapHuge(size); b != nil {
			m := &memory{bytes: b[:n:n], mapped: b}
			m.cleanup = runtime.AddCleanup(m, unmap, b)
			return m
		}
	}
	return &memory{bytes: make([]byte, n)}
}

// releaseEnd gives the last n bytes of a mapping back, or all if there are no more, and
// returns how many that were. Nobody may use the memory any more.
func (m *memory) releaseEnd(n int) int64 {
	m.cleanup.Stop()
	keep := max(len(m.mapped)-n, 0)
	end := m.mapped[keep:]
	m.bytes, m.mapped = nil, m.mapped[:keep:keep]
	unmap(end)
	if keep == 0 {
		m.mapped = nil
	} else {
		m.cleanup = runtime.AddCleanup(m, unmap, m.mapped)
	}
	return int64(len(end))
}

// releaseStep releases a part of what a reset has left behind: unmapping a slab takes
// up to a millisecond, so it is done a huge page at a time and spread over later changes.
func (x *Index) releaseStep() bool {
	n := len(x.discarded)
	if n == 0 {
		return false
	}
	m := x.discarded[n-1]
	x.discardBytes -= m.releaseEnd(hugePage)
	if m.mapped == nil {
		x.discarded[n-1] = nil
		x.discarded = x.discarded[:n-1]
	}
	return true
}

// discard leaves memory that readers do not see any more to be released.
func (x *Index) discard(m *memory) {
	if m.mapped != nil { // the rest is the collector's
		x.discarded = append(x.discarded, m)
		x.discardBytes += int64(len(m.mapped))
	}
}
