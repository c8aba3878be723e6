package server

import (
	"cmp"
	"slices"
)

// What a connection holds is charged to the admission: replies that the peer has not read, bytes that wait for a turn,
// unfinished requests and jobs. A request for which there is no memory is refused before any work is done for it. A
// connection that holds more without a request is closed, by its own event loop: who pays is who holds.

// evictable is who holds memory that others need. Any goroutine may call its methods.
type evictable interface {
	// admitted returns what it holds beyond its own share.
	admitted() int64
	// isEnding reports whether its memory is free soon.
	isEnding() bool
	// isLate reports whether it makes no progress by its own fault.
	isLate() bool
	// evict makes its memory free soon.
	evict()
}

// evictLate makes over bytes free, if it can: those of who is late, beginning with who holds most.
func evictLate(over int64, all []evictable) {
	type late struct {
		evictable
		bytes int64 // which change meanwhile
	}
	var found []late
	for _, h := range all {
		switch bytes := h.admitted(); {
		case h.isEnding():
			over -= bytes
		case bytes > 0 && h.isLate():
			found = append(found, late{h, bytes})
		}
	}
	slices.SortFunc(found, func(a, b late) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, h := range found {
		if over <= 0 {
			return
		}
		over -= h.bytes
		h.evict()
	}
}
