package held

import (
	"cmp"
	"slices"
)

// Evictable is who holds memory that others need. Any goroutine may call its methods.
type Evictable interface {
	// Admitted returns what it holds beyond its own share.
	Admitted() int64
	// IsEnding reports whether its memory is free soon.
	IsEnding() bool
	// IsLate reports whether it makes no progress by its own fault.
	IsLate() bool
	// Evict makes its memory free soon.
	Evict()
}

// EvictLate makes over bytes free, if it can: those of who is late, beginning with who holds most.
func EvictLate(over int64, all []Evictable) {
	type late struct {
		Evictable
		bytes int64 // which change meanwhile
	}
	var found []late
	for _, h := range all {
		switch bytes := h.Admitted(); {
		case h.IsEnding():
			over -= bytes
		case bytes > 0 && h.IsLate():
			found = append(found, late{h, bytes})
		}
	}
	slices.SortFunc(found, func(a, b late) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, h := range found {
		if over <= 0 {
			return
		}
		over -= h.bytes
		h.Evict()
	}
}
