package httpapi

import (
	"net/http"
	"sync"
	"time"
)

const (
	// minArrival is how long a body may arrive before it may be ended in favour of another request: a prompt of a million
	// tokens arrives within that from nearby.
	minArrival = time.Second
	// placeTimeout bounds the wait for the place of a body that was ended.
	placeTimeout = 100 * time.Millisecond
)

// arrivals are the bodies that are arriving. If all places of requests are taken, the body that has been arriving for
// longest is ended, so that slow senders do not keep the others out. Safe for concurrent use.
type arrivals struct {
	min  time.Duration // minArrival, or another one of a test
	wait time.Duration // placeTimeout, or another one of a test
	mu   sync.Mutex
	list map[*arrival]struct{}
}

// arrival is a body that is arriving.
type arrival struct {
	since   time.Time
	control *http.ResponseController
}

func newArrivals() arrivals {
	return arrivals{min: minArrival, wait: placeTimeout, list: map[*arrival]struct{}{}}
}

// begin adds a body that begins to arrive. end must be called before the handler of the request returns.
func (a *arrivals) begin(w http.ResponseWriter) *arrival {
	b := &arrival{time.Now(), http.NewResponseController(w)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list[b] = struct{}{}
	return b
}

// end removes a body. It returns false if it was ended in favour of another request.
func (a *arrivals) end(b *arrival) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.list[b]
	delete(a.list, b)
	return ok
}

// cut ends the body that has been arriving for longest, so that reading it fails. It returns false if each has been
// arriving for less than min.
func (a *arrivals) cut(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	var oldest *arrival
	for b := range a.list {
		if oldest == nil || b.since.Before(oldest.since) {
			oldest = b
		}
	}
	if oldest == nil || now.Sub(oldest.since) < a.min {
		return false
	}
	delete(a.list, oldest)
	return oldest.control.SetReadDeadline(now) == nil
}

// takePlace takes one of the places of requests, and ends a body for it if need be. It reports whether it did; then the
// caller frees the place.
func (h *Handler) takePlace() bool {
	select {
	case h.requests <- struct{}{}:
		return true
	default:
	}
	if !h.arrivals.cut(time.Now()) {
		return false
	}
	timer := time.NewTimer(h.arrivals.wait)
	defer timer.Stop()
	select {
	case h.requests <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}
