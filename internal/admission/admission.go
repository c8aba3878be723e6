// Package admission bounds the memory of requests.
package admission

import "sync/atomic"

// SmallBytes is how many bytes a small request has at most: 2,048 hashes of 32 bytes.
const SmallBytes = 64 << 10

// Admission bounds the bytes of requests. A quarter of them is for small ones alone: large ones cannot keep them out. Who
// has some may take only as many more as are left then: at most half of what others leave. Safe for concurrent use.
type Admission struct {
	max, maxLarge int64
	all, large    atomic.Int64
}

// New returns an Admission of at most maxBytes.
func New(maxBytes int64) *Admission {
	return &Admission{max: maxBytes, maxLarge: maxBytes - maxBytes/4}
}

// MaxLarge returns the bound of large requests in bytes.
func (a *Admission) MaxLarge() int64 { return a.maxLarge }

// Held returns the bytes that are admitted.
func (a *Admission) Held() int64 { return a.all.Load() }

// Admit adds n bytes of a request. held is what its sender has already: if it is 0, they need only fit. It returns false and
// adds nothing if that is too much.
func (a *Admission) Admit(n int64, small bool, held int64) bool {
	left := a.max - a.all.Add(n)
	if !small {
		left = min(left, a.maxLarge-a.large.Add(n))
	}
	if left >= 0 && (held == 0 || held+n <= left) {
		return true
	}
	a.Free(n, small)
	return false
}

// Free subtracts n bytes that were admitted.
func (a *Admission) Free(n int64, small bool) {
	a.all.Add(-n)
	if !small {
		a.large.Add(-n)
	}
}
