//go:build hitline_holds

package index

import (
	"runtime"
	"strings"
	"sync"
	"time"
)

// holds are those of one lock, for reading or for writing. The lock guards them,
// but for those for reading, which readMu guards.
type holds struct {
	work   *int // counted in the hold under way, beside amount; may be nil
	amount int  // counted in the hold under way
	begun  time.Time

	number  int
	longest time.Duration
	most    int    // counted in one hold
	slowest string // the function that released the longest hold
	busiest string // the function that released the hold with most
}

func (h *holds) begin() {
	if h.amount = 0; h.work != nil {
		*h.work = 0
	}
	h.begun = time.Now()
}

func (h *holds) end() {
	took := time.Since(h.begun)
	if h.work != nil {
		h.amount += *h.work
	}
	h.number++
	if took > h.longest {
		h.longest, h.slowest = took, holder()
	}
	if h.amount > h.most {
		h.most, h.busiest = h.amount, holder()
	}
}

// holder returns the name of the function that releases the lock: the first caller that
// is no method of mutex or rwMutex.
func holder() string {
	var pcs [8]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		if !more || !strings.Contains(name, "utex)") {
			return name
		}
	}
}

// mutex is a lock that records its holds.
type mutex struct {
	sync.Mutex
	holds
}

func (m *mutex) watch(work *int) { m.work = work }
func (m *mutex) count(n int)     { m.amount += n }

func (m *mutex) Lock() {
	m.Mutex.Lock()
	m.begin()
}

func (m *mutex) TryLock() bool {
	ok := m.Mutex.TryLock()
	if ok {
		m.begin()
	}
	return ok
}

func (m *mutex) Unlock() {
	m.end()
	m.Mutex.Unlock()
}

// rwMutex is a lock that records its holds. Holds for reading that overlap count as one.
type rwMutex struct {
	sync.RWMutex
	write holds

	readMu  sync.Mutex // guards the rest
	readers int
	read    holds
}

func (m *rwMutex) count(n int) { m.write.amount += n }

func (m *rwMutex) countRead(n int) {
	m.readMu.Lock()
	m.read.amount += n
	m.readMu.Unlock()
}

func (m *rwMutex) Lock() {
	m.RWMutex.Lock()
	m.write.begin()
}

func (m *rwMutex) TryLock() bool {
	ok := m.RWMutex.TryLock()
	if ok {
		m.write.begin()
	}
	return ok
}

func (m *rwMutex) Unlock() {
	m.write.end()
	m.RWMutex.Unlock()
}

func (m *rwMutex) RLock() {
	m.RWMutex.RLock()
	m.beginRead()
}

func (m *rwMutex) TryRLock() bool {
	ok := m.RWMutex.TryRLock()
	if ok {
		m.beginRead()
	}
	return ok
}

func (m *rwMutex) beginRead() {
	m.readMu.Lock()
	defer m.readMu.Unlock()
	if m.readers++; m.readers == 1 {
		m.read.begin()
	}
}

func (m *rwMutex) RUnlock() {
	m.readMu.Lock()
	if m.readers--; m.readers == 0 {
		m.read.end()
	}
	m.readMu.Unlock()
	m.RWMutex.RUnlock()
}
