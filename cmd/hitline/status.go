package main

import (
	"encoding/json"
	"net/http"

	"github.com/hitline/hitline/cmd/hitline/internal/status"
)

// maxStatus bounds the replies to /status that are computed at a time. Further requests get status 503.
const maxStatus = 4

// statusHandler answers GET /status.
type statusHandler struct {
	collector *status.Collector
	places    chan struct{} // one element for each reply that is computed
}

// ServeHTTP implements http.Handler. The reply is computed before it is written, so a client that does not read holds
// none of the places.
func (h *statusHandler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	select {
	case h.places <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "busy with other requests; try again", http.StatusServiceUnavailable)
		return
	}
	text, err := json.Marshal(h.collector.Status())
	<-h.places
	if err != nil { // a number that is not finite
		http.Error(w, "the reply cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the client may be gone
}
