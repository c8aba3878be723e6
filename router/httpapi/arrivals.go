package httpapi

import (
	"net/http"
	"sync"
	"time"
)

// arrivals are the bodies that are arriving, with the time when each began. If no further request is admitted, the oldest
// is ended, so that slow senders do not keep the others out. Safe for concurrent use.
type arrivals struct {
	mu    sync.Mutex
	begun map[*http.ResponseController]time.Time
}

// begin adds a body that begins to arrive. end must be called before the handler of the request returns.
func (a *arrivals) begin(w http.ResponseWriter) *http.ResponseController {
	control := http.NewResponseController(w)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begun[control] = time.Now()
	return control
}

// end removes a body. It returns false if it was ended in favour of another request.
func (a *arrivals) end(control *http.ResponseController) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.begun[control]
	delete(a.begun, control)
	return ok
}

// cut ends the oldest body, so that reading it fails. It returns false if none began before a time.
func (a *arrivals) cut(before time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	var oldest *http.ResponseController
	for control, begun := range a.begun {
		if begun.Before(before) {
			oldest, before = control, begun
		}
	}
	if oldest == nil {
		return false
	}
	delete(a.begun, oldest)
	return oldest.SetReadDeadline(time.Now()) == nil
}

// admitOne admits one more request, and ends a body for it if need be: one that has been arriving for a tenth of the time
// that bodies have, in which a prompt of a million tokens arrives from nearby. If it returns true, the caller receives from
// h.requests at the end.
func (h *Handler) admitOne() bool {
	select {
	case h.requests <- struct{}{}:
		return true
	default:
	}
	if !h.arrivals.cut(time.Now().Add(-h.cfg.limits.arrival / 10)) {
		return false
	}
	select {
	case h.requests <- struct{}{}:
		return true
	case <-time.After(h.cfg.limits.reply):
		return false
	}
}
