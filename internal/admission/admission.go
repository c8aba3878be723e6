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
	max, share atomic.Int64
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

// New returns an Admission of at most maxBytes. Besides, each Holder has share bytes of its own.
func New(maxBytes, share int64) *Admission {
	a := &Admission{}
	a.Resize(maxBytes, share)
	return a
}

// Resize changes the bounds. Who holds more stays, and each Holder has the new share from its next Set on.
func (a *Admission) Resize(maxBytes, share int64) {
	a.max.Store(maxBytes)
	a.share.Store(share)
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
		return a.add(n, small, 0)
	}
	return a.add(n, small, held+n)
}

// Take adds n bytes to those that a sender holds, as small ones, unless it has more than it leaves then. This also
// holds for its first.
func (a *Admission) Take(n, held int64) bool { return a.add(n, true, held+n) }

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

// add adds n bytes, unless fewer than some are left then.
func (a *Admission) add(n int64, small bool, some int64) bool {
	ok := a.tryAdd(n, small, some)
	if !ok {
		a.wake() // those that wait may have failed meanwhile
	}
	return ok
}

// tryAdd is add, but may fail because another one fails at the same time. Callers then try again, or wake.
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

// Holder is what one sender holds. Its zero value holds nothing. One goroutine at a time changes it.
type Holder struct {
	bytes atomic.Int64 // all
	kept  int64        // of these
	share int64        // that it had at the last Set
}

// Bytes returns how many bytes it holds. Any goroutine may call it.
func (h *Holder) Bytes() int64 { return h.bytes.Load() }

// Set makes a holder hold n bytes, of which some are kept: they have arrived and are not read. It has its own share.
// Beyond that what is kept counts as small, and the rest as large, and it may have no more than is left then: so who
// wants less is admitted longer. If it waits for requests of its own, it may keep as much as is left, and hold no more
// than before in any case. Set returns false and changes nothing if that is too much.
func (a *Admission) Set(h *Holder, n, kept int64, waits bool) bool {
	share := a.share.Load()
	hadSmall, hadLarge := parts(h.Bytes(), h.kept, h.share)
	small, large := parts(n, kept, share)
	if n > h.Bytes() || !waits {
		if large > hadLarge && !a.add(large-hadLarge, false, large) {
			return false
		}
		some := small
		if !waits {
			some += large
		}
		if small > hadSmall && !a.add(small-hadSmall, true, some) {
			a.Free(max(large-hadLarge, 0), false)
			return false
		}
		small, large = min(small, hadSmall), min(large, hadLarge)
	}
	a.Free(hadSmall-small, true)
	a.Free(hadLarge-large, false)
	h.bytes.Store(n)
	h.kept, h.share = kept, share
	return true
}

// Fits reports whether Set may make a holder hold n bytes of which none are kept.
func (a *Admission) Fits(h *Holder, n int64) bool {
	_, had := parts(h.Bytes(), h.kept, h.share)
	_, large := parts(n, 0, a.share.Load())
	left := min(a.max.Load()-a.all.Load(), a.maxLarge()-a.large.Load()) - (large - had)
	return large <= had || large <= left
}

// Admitted returns how many bytes of a holder are not of its own share.
func (a *Admission) Admitted(h *Holder) int64 { return max(h.Bytes()-a.share.Load(), 0) }

// parts returns how many of n bytes are small and large beyond a share, which is first of the large ones.
func parts(n, kept, share int64) (small, large int64) {
	beyond := max(n-share, 0)
	large = max(n-kept-share, 0)
	return beyond - large, large
}
