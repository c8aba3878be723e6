package httpapi

import "sync/atomic"

// RequestCount is how many requests of a path were answered with a status.
type RequestCount struct {
	Path   string // "other" for paths that there are not
	Status int
	Count  int64
}

// counters count replies by endpoint and status. Safe for concurrent use.
type counters [][600]atomic.Int64

func (c counters) count(number, status int) {
	if status >= 0 && status < len(c[number]) {
		c[number][status].Add(1)
	}
}

// Requests returns how many requests were answered, in a fixed order. The caller owns the result.
func (h *Handler) Requests() []RequestCount {
	var list []RequestCount
	for number := range h.counters {
		path := "other"
		if number < len(endpoints) {
			path = endpoints[number].path
		}
		for status := range h.counters[number] {
			if n := h.counters[number][status].Load(); n > 0 {
				list = append(list, RequestCount{path, status, n})
			}
		}
	}
	return list
}
