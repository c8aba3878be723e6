// Package held bounds the bytes that the connections of a server hold, and chooses which are closed when few are left. It
// knows no connection: each has a Holder, and is Evictable.
package held

import (
	"sync/atomic"

	"github.com/hitline/hitline/internal/admission"
)

// Admission bounds the bytes of all connections. Each has a share of its own, and together they have what the
// embedded one admits. Safe for concurrent use.
type Admission struct {
	*admission.Admission
	share atomic.Int64
}

// New returns an Admission of at most common bytes for all, and share bytes for each.
func New(common, share int64) *Admission {
	a := &Admission{Admission: admission.New(common)}
	a.share.Store(share)
	return a
}

// Resize changes the bounds. Who holds more stays, and each Holder has the new share from its next Set on.
func (a *Admission) Resize(common, share int64) {
	a.share.Store(share)
	a.Admission.Resize(common)
}

// Holder is what one connection holds. Its zero value holds nothing. One goroutine at a time changes it.
type Holder struct {
	bytes atomic.Int64 // all
	small int64        // of these
	share int64        // that it had at the last Set
}

// Bytes returns how many bytes it holds. Any goroutine may call it.
func (h *Holder) Bytes() int64 { return h.bytes.Load() }

// Set makes a holder hold n bytes, of which some are small: bytes that have arrived and are not read, or of small
// requests. It has its own share. Beyond that it may have no more than is left then: so who wants less is admitted
// longer. If it waits for requests of its own, it may have as much more that is small as is left, and hold no more than
// before in any case. Set returns false and changes nothing if that is too much.
func (a *Admission) Set(h *Holder, n, ofSmall int64, waits bool) bool {
	share := a.share.Load()
	hadSmall, hadLarge := parts(h.Bytes(), h.small, h.share)
	small, large := parts(n, ofSmall, share)
	if n > h.Bytes() || !waits {
		if large > hadLarge && !a.Add(large-hadLarge, false, large) {
			return false
		}
		some := small
		if !waits {
			some += large
		}
		if small > hadSmall && !a.Add(small-hadSmall, true, some) {
			a.Free(max(large-hadLarge, 0), false)
			return false
		}
		small, large = min(small, hadSmall), min(large, hadLarge)
	}
	a.Free(hadSmall-small, true)
	a.Free(hadLarge-large, false)
	h.bytes.Store(n)
	h.small, h.share = ofSmall, share
	return true
}

// Fits reports whether Set may make a holder hold n bytes of which none are small.
func (a *Admission) Fits(h *Holder, n int64) bool {
	_, had := parts(h.Bytes(), h.small, h.share)
	_, large := parts(n, 0, a.share.Load())
	return large <= had || large <= a.Left(false)-(large-had)
}

// Admitted returns how many bytes of a holder are not of its own share.
func (a *Admission) Admitted(h *Holder) int64 { return max(h.Bytes()-a.share.Load(), 0) }

// parts returns how many of n bytes are small and large beyond a share, which is first of the large ones.
func parts(n, ofSmall, share int64) (small, large int64) {
	beyond := max(n-share, 0)
	large = max(n-ofSmall-share, 0)
	return beyond - large, large
}
