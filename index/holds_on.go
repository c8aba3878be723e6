//go:build hitline_holds

package index

import (
	"runtime"
	"strings"
	"sync"
	"time"
)

// holds are those of one lock, which guards them, or those for reading of one stripe of a gate,
// which a readHolds guards.
type holds struct {
	work   *int // counted in the hold under way, beside amount; may be nil
	amount int  // counted in the hold under way
	begun  time.Time

	number  int
	longest time.Duration
	most    int            // counted in one hold
	slowest string         // the function that released the longest hold
	busiest string         // the function that released the hold with most
	by      map[string]int // the most of each function
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
	by := holder()
	if h.amount > h.most {
		h.most, h.busiest = h.amount, by
	}
	if h.by == nil {
		h.by = map[string]int{}
	}
	h.by[by] = max(h.by[by], h.amount)
}

// holder returns the name of the function that releases the lock: the first caller that
// is no method of a lock.
func holder() string {
	var pcs [8]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		if !more || strings.Contains(name, "Index)") || !strings.Contains(name, "mutex)") && !strings.Contains(name, "gate)") && !strings.Contains(name, "readHolds)") {
			return name
		}
	}
}

// watch adds a counter to what is counted.
func (h *holds) watch(work *int) { h.work = work }

// count adds to what the hold under way has touched.
func (h *holds) count(n int) { h.amount += n }

// readHolds are those of the lookups that use one stripe of a gate. Those that overlap count
// as one.
type readHolds struct {
	mu      sync.Mutex // guards the rest
	readers int
	read    holds
}

func (r *readHolds) beginRead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readers++; r.readers == 1 {
		r.read.begin()
	}
}

func (r *readHolds) endRead() {
	r.mu.Lock()
	if r.readers--; r.readers == 0 {
		r.read.end()
	}
	r.mu.Unlock()
}

// countRead adds to what the holds under way have touched.
func (r *readHolds) countRead(n int) {
	r.mu.Lock()
	r.read.amount += n
	r.mu.Unlock()
}
