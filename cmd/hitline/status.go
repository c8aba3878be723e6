package main

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/router"
)

const (
	// maxStatus bounds the replies to /status that are computed at a time. Further requests get status 503.
	maxStatus = 4
	// maxListed bounds each list of /status: there may be thousands of pools and sources.
	maxListed = 100
)

// status is the reply to GET /status.
type status struct {
	Ready          bool          `json:"ready"`
	NotReadyReason string        `json:"not_ready_reason"` // empty if it is ready
	Stat           api.Stat      `json:"stat"`             // of the server, and of its own pool
	Pools          []statusPool  `json:"pools"`            // at most maxListed; Stat.Pools has their number
	Router         *statusRouter `json:"router"`           // nil if there is none
}

// statusPool is one pool.
type statusPool struct {
	Name          string   `json:"name"` // "" for the server's own
	Described     bool     `json:"described"`
	Model         string   `json:"model_name"`
	HashBlockSize int      `json:"hash_block_size"` // tokens of a hash
	Stat          api.Stat `json:"stat"`
}

// statusRouter is what a router follows.
type statusRouter struct {
	Models       []statusModel         `json:"models"`
	TotalSources int                   `json:"total_sources"`
	Sources      []router.SourceStatus `json:"sources"` // at most maxListed: first those that count for nothing
}

// statusModel is a model with numbers of its holders, which may be thousands.
type statusModel struct {
	router.ModelStatus
	Holders      int `json:"holders"`
	StaleHolders int `json:"stale_holders"`
}

// statusHandler answers GET /status.
type statusHandler struct {
	server *server.Server
	router *router.Service // nil if there is none
	places chan struct{}   // one element for each reply that is computed
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
	text, err := h.reply()
	<-h.places
	if err != nil { // a number that is not finite
		http.Error(w, "the reply cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the client may be gone
}

// reply returns the status of the server.
func (h *statusHandler) reply() ([]byte, error) {
	st := status{Stat: h.server.Stat(), Pools: []statusPool{}}
	if err := h.server.Ready(); err != nil {
		st.NotReadyReason = strings.TrimPrefix(err.Error(), server.ErrNotReady.Error()+": ")
	}
	st.Ready = st.NotReadyReason == ""
	pools, stats := h.server.Pools(), h.server.PoolStats()
	for _, pool := range pools[:min(len(pools), maxListed)] {
		of := pool.Service.Pool()
		st.Pools = append(st.Pools, statusPool{pool.Name, pool.Described, of.ModelName, of.HashBlockSize, stats[pool.Name]})
	}
	if h.router != nil {
		st.Router = newStatusRouter(h.router.Models(), h.router.Status())
	}
	return json.Marshal(st)
}

// newStatusRouter returns what /status tells of models, and of sources, which are by name.
func newStatusRouter(models []router.ModelStatus, sources []router.SourceStatus) *statusRouter {
	s := &statusRouter{Models: []statusModel{}, TotalSources: len(sources), Sources: []router.SourceStatus{}}
	for _, m := range models {
		s.Models = append(s.Models, statusModel{m, len(m.Holders), m.NumStale()})
	}
	for _, useless := range []bool{true, false} {
		for _, of := range sources {
			if (of.Stale || of.Hashes == router.HashesDiffer) == useless && len(s.Sources) < maxListed {
				s.Sources = append(s.Sources, of)
			}
		}
	}
	return s
}
