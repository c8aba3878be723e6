// Package admission bounds what requests hold at a time: bytes of memory, or tokens of which each holds one.
package admission

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// SmallBytes is how many bytes a small request has at most, and a request of little work in hashes of its keys: 2,048
// hashes of 32 bytes.
const SmallBytes = 64 << 10

// Admission bounds the bytes of requests. A quarter of them is for small ones alone: large ones cannot keep them out.
// Who has some may take only as many more as are left then: at most half of what others leave. Wait
// ignores that: it waits until the bytes fit. Safe for concurrent use.
type Admission struct {
	max        atomic.Int64
	all, large atomic.Int64

	mu         sync.Mutex
	waiting    []*waiter // the next one first
	numWaiting atomic.Int64
}

// waiter is a request that waits for n bytes.
type waiter struct {
	n        int64
	small    bool
	admitted chan struct{} // closed when it has them
}

// New returns an Admission of at most maxBytes.
func New(maxBytes int64) *Admission {
	a := &Admission{}
	a.max.Store(maxBytes)
	return a
}

// Resize changes the bound. Who holds more stays.
func (a *Admission) Resize(maxBytes int64) {
	a.max.Store(maxBytes)
	a.wake()
}

// maxLarge is how many bytes large requests have at most: all but a quarter. Of several tokens at least one is kept.
func (a *Admission) maxLarge() int64 {
	most := a.max.Load()
	kept := most / 4
	if kept == 0 && most > 1 {
		kept = 1
	}
	return most - kept
}

// MaxRequest returns how many bytes one sender gets at most: half of what large requests have, as none takes more than
// it leaves.
func (a *Admission) MaxRequest() int64 { return a.maxLarge() / 2 }

// Max returns how many bytes all have at most.
func (a *Admission) Max() int64 { return a.max.Load() }

// Held returns the bytes that are admitted.
func (a *Admission) Held() int64 { return a.all.Load() }

// Scarce returns how many bytes are to be freed for an eighth to be left, 0 or less if none.
func (a *Admission) Scarce() int64 { return a.Held() - a.max.Load()/8*7 }

// Admit adds n bytes of a request. held is what its sender has already: if it is 0, they need only fit. It returns
// false and adds nothing if that is too much.
func (a *Admission) Admit(n int64, small bool, held int64) bool {
	if held == 0 {
		return a.Add(n, small, 0)
	}
	return a.Add(n, small, held+n)
}

// Wait adds n bytes, at most those that a request may have, when they fit, unless ctx ends before. Who came first is first,
// but small requests do not wait for what large ones have together. It returns the error of ctx if nothing was added.
func (a *Admission) Wait(ctx context.Context, n int64, small bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !a.IsWaited() && a.tryAdd(n, small, 0) {
		return nil
	}
	w := &waiter{n, small, make(chan struct{})}
	a.mu.Lock()
	a.waiting = append(a.waiting, w)
	a.numWaiting.Add(1)
	a.admitWaiting()
	a.mu.Unlock()
	select {
	case <-w.admitted:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.waiting, w)
	if i < 0 {
		return nil // it was admitted just now
	}
	a.remove(i)
	a.admitWaiting() // those after it may need less
	return ctx.Err()
}

// IsWaited reports whether requests wait.
func (a *Admission) IsWaited() bool { return a.numWaiting.Load() > 0 }

// admitWaiting admits those that wait, as far as they fit. mu is held.
func (a *Admission) admitWaiting() {
	for i := 0; i < len(a.waiting); {
		w := a.waiting[i]
		switch {
		case a.tryAdd(w.n, w.small, 0):
			close(w.admitted)
			a.remove(i)
		case !w.small && a.large.Load()+w.n > a.maxLarge():
			i = a.nextSmall(i) // it waits for large ones alone
		default:
			return
		}
	}
}

// nextSmall returns where the first small request behind i waits. mu is held.
func (a *Admission) nextSmall(i int) int {
	for i++; i < len(a.waiting) && !a.waiting[i].small; i++ {
	}
	return i
}

func (a *Admission) remove(i int) {
	a.waiting = slices.Delete(a.waiting, i, i+1)
	a.numWaiting.Add(-1)
}

// Left returns how many more bytes fit.
func (a *Admission) Left(small bool) int64 {
	left := a.max.Load() - a.all.Load()
	if !small {
		left = min(left, a.maxLarge()-a.large.Load())
	}
	return left
}

// Add adds n bytes, unless fewer than some are left then. It returns false if it adds nothing.
func (a *Admission) Add(n int64, small bool, some int64) bool {
	ok := a.tryAdd(n, small, some)
	if !ok {
		a.wake() // those that wait may have failed meanwhile
	}
	return ok
}

// tryAdd is Add, but may fail because another one fails at the same time. Callers then try again, or wake.
func (a *Admission) tryAdd(n int64, small bool, some int64) bool {
	left := a.max.Load() - a.all.Add(n)
	if !small {
		left = min(left, a.maxLarge()-a.large.Add(n))
	}
	if left >= some {
		return true
	}
	a.subtract(n, small)
	return false
}

// Free subtracts n bytes that were admitted.
func (a *Admission) Free(n int64, small bool) {
	a.subtract(n, small)
	a.wake()
}

func (a *Admission) subtract(n int64, small bool) {
	a.all.Add(-n)
	if !small {
		a.large.Add(-n)
	}
}

// wake admits those that wait, as something was freed.
func (a *Admission) wake() {
	if a.IsWaited() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.admitWaiting()
	}
}
