// Package httpface answers who holds the longest prefix of a prompt over HTTP, in the shape that routers know from
// other indexers of KV events.
package httpface

import (
	"net/http"
)

// Handler is the HTTP face of a holders.Service. Safe for concurrent use.
type Handler struct {
	cfg Config
}

// New returns the handler. The caller bounds connections, and the time in which headers arrive, as http.Server does; the
// handler bounds bodies and replies.
func New(cfg Config) *Handler {
	cfg.Limits = cfg.Limits.withDefaults()
	return &Handler{cfg: cfg}
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "to be written", http.StatusServiceUnavailable)
}
