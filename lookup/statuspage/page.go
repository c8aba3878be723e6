package statuspage

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/hitline/hitline/internal/httpguard"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/lookup/snapshot"
)

const (
	// maxStatus bounds the replies to /status that are computed at a time. One takes some
	// milliseconds beside thousands of connections, so that more would be a flood.
	maxStatus = 4
	// maxExplain bounds the explanations at a time. Each takes a CPU for as long as a lookup of
	// maxExplainBody bytes.
	maxExplain = 2
)

// Options configure a Page. Zero fields mean the defaults.
type Options struct {
	// Snapshot returns the state of the server's snapshots, nil if there are none.
	Snapshot func() *snapshot.Status
	// Router returns the state of the router, which the page draws and /status has as JSON; nil if there is none.
	Router func() any
	// Local says that the page is served on loopback: see httpguard.Guard.
	Local bool
	// Logger gets faults; nil discards them.
	Logger *slog.Logger
}

// Page serves the status of one server. It is an http.Handler of /, /status and /explain, safe for
// concurrent use. The caller bounds the time in which a request arrives and its reply is read, as
// http.Server does.
type Page struct {
	server  *server.Server
	options Options
	guard   httpguard.Guard
	sampler *sampler
	mux     *http.ServeMux
	status  chan struct{} // one element for each reply that is computed
	explain chan struct{}
}

// New returns a page, which samples the counters of the server until Close.
func New(srv *server.Server, options Options) *Page {
	p := &Page{
		server: srv, options: options, sampler: startSampler(srv, options.Logger), mux: http.NewServeMux(),
		guard:  httpguard.Guard{Local: options.Local, Links: []string{"/"}},
		status: make(chan struct{}, maxStatus), explain: make(chan struct{}, maxExplain),
	}
	p.mux.HandleFunc("GET /{$}", serveDocument)
	p.mux.HandleFunc("GET /status", p.serveStatus)
	p.mux.HandleFunc("POST /explain", p.serveExplain)
	return p
}

// Close ends the sampling, and waits for its goroutine. Requests are still answered, without new samples.
func (p *Page) Close() { p.sampler.close() }

// ServeHTTP answers a request for one of the three paths, and others with status 404.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httpguard.SetHeaders(w.Header())
	if err := p.guard.Check(r); err != nil {
		writeError(w, http.StatusForbidden, err.Error())
		return
	}
	p.mux.ServeHTTP(w, r)
}

// serveStatus answers /status.
func (p *Page) serveStatus(w http.ResponseWriter, r *http.Request) {
	reply, err := p.statusFor(r)
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, reply)
}

// statusFor returns the reply to /status. Its place is free before the reply is written: a client that does not
// read holds none.
func (p *Page) statusFor(r *http.Request) (*status, error) {
	if !acquire(p.status) {
		return nil, errBusy
	}
	defer release(p.status)
	return p.currentStatus(p.isAdmin(r)), nil
}

var errBusy = errors.New("busy with other requests; try again")

// acquire takes a place, if one is free.
func acquire(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

func release(places chan struct{}) { <-places }

// writeError writes the reply to a request that is refused: {"error": "…"}. The text may repeat a name of the
// request, however long, so it is cut.
func writeError(w http.ResponseWriter, code int, why string) {
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, code, map[string]string{"error": fmt.Sprintf("%.500s", why)})
}

// writeJSON writes a reply. The client may be gone, which is no error.
func writeJSON(w http.ResponseWriter, code int, reply any) {
	text, err := json.Marshal(reply)
	if err != nil { // a float64 that is not finite
		http.Error(w, "the reply cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}
