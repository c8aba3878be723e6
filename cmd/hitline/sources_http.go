package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/feed"
	"github.com/hitline/hitline/lookup/statuspage"
)

const (
	sourcesPath = "/events/sources"
	// maxSourceBody bounds the body of a registration in bytes: ten times the longest that makes sense.
	maxSourceBody = 16 << 10
)

// sourceEndpoints serves the sources of KV events over HTTP.
type sourceEndpoints struct {
	sources *feed.Sources // nil if there can be none
	// configure returns a registered source with its defaults, or what is wrong with it.
	configure func(config.EventSource) (events.Config, error)
	mayChange bool // events.register is not empty
	guard     statuspage.Guard
	logger    *slog.Logger
	refusals  *loglimit.Limit // of the log
}

// newSourceEndpoints returns the endpoints of sources, which may be nil.
func (r *running) newSourceEndpoints(sources *feed.Sources) sourceEndpoints {
	return sourceEndpoints{
		sources: sources, mayChange: len(r.cfg.Events.Register) > 0, logger: r.logger, refusals: new(loglimit.Limit),
		configure: func(s config.EventSource) (events.Config, error) {
			err := s.CheckRegistered()
			return eventsConfig(r.cfg, s, r.logger), err
		},
	}
}

// handle serves the sources, or says that there are none.
func (e *sourceEndpoints) handle(mux *http.ServeMux) {
	if e.sources == nil {
		off := notServed("no KV events are followed here: events has neither sources nor register")
		mux.Handle(sourcesPath, off)
		mux.Handle(sourcesPath+"/", off)
		return
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET "+sourcesPath, e.list)
	routes.HandleFunc("POST "+sourcesPath, e.register)
	routes.HandleFunc("DELETE "+sourcesPath, e.unregister)
	routes.HandleFunc("DELETE "+sourcesPath+"/{name}", e.unregister)
	checked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		statuspage.SetHeaders(w.Header())
		if err := e.guard.CheckOrigin(r); err != nil {
			statuspage.WriteError(w, http.StatusForbidden, err.Error())
			return
		}
		routes.ServeHTTP(w, r)
	})
	mux.Handle(sourcesPath, checked)
	mux.Handle(sourcesPath+"/", checked)
}

// sourceList is the reply to GET.
type sourceList struct {
	Sources []feed.SourceStatus `json:"sources"`
}

func (e *sourceEndpoints) list(w http.ResponseWriter, _ *http.Request) {
	statuspage.WriteJSON(w, http.StatusOK, sourceList{e.sources.Status()})
}

// registration is the body of POST.
type registration struct {
	Name        string          `json:"name"`
	Connect     string          `json:"connect"`
	Replay      string          `json:"replay"`
	Topic       string          `json:"topic"`
	Pool        string          `json:"pool"`
	Media       []string        `json:"media"`
	ExactCopies bool            `json:"exact_copies"`
	Timeout     config.Duration `json:"timeout"`
}

// register answers POST: it follows a source.
func (e *sourceEndpoints) register(w http.ResponseWriter, r *http.Request) {
	if !e.admit(w) || !e.guard.AdmitJSON(w, r) {
		return
	}
	var request registration
	if code, err := readJSON(w, r, &request); err != nil {
		statuspage.WriteError(w, code, err.Error())
		return
	}
	source := config.EventSource{
		Name: request.Name, Connect: request.Connect, Replay: request.Replay, Topic: request.Topic, Pool: request.Pool,
		Media: request.Media, ExactCopies: request.ExactCopies, Timeout: request.Timeout,
	}
	cfg, err := e.configure(source.WithDefaults())
	if err != nil {
		statuspage.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := e.sources.Register(feed.Source{Config: cfg, Pool: request.Pool, Media: request.Media}); err != nil {
		if suppressed, ok := e.refusals.Admit(time.Now()); ok {
			e.logger.Warn("source of KV events not registered", "source", cfg.Name, "endpoint", cfg.Connect, "peer", r.RemoteAddr,
				"error", err.Error(), "suppressed", suppressed)
		}
		statuspage.WriteError(w, statusOfSourceError(err), err.Error())
		return
	}
	e.logger.Info("source of KV events registered", "source", cfg.Name, "endpoint", cfg.Connect, "replay", cfg.Replay, "pool", request.Pool, "peer", r.RemoteAddr)
	for _, st := range e.sources.Status() {
		if st.Name == cfg.Name {
			statuspage.WriteJSON(w, http.StatusCreated, st)
			return
		}
	}
	statuspage.WriteError(w, http.StatusNotFound, "the source was unregistered meanwhile")
}

// unregister answers DELETE: it ends a source that was registered. Its name is in the path or, as a path has no
// two slashes in a row, in the query.
func (e *sourceEndpoints) unregister(w http.ResponseWriter, r *http.Request) {
	if !e.admit(w) || !e.guard.AdmitAdmin(w, r) {
		return
	}
	name := r.PathValue("name")
	if name == "" {
		name = r.URL.Query().Get("name")
	}
	if err := e.sources.Unregister(name); err != nil {
		statuspage.WriteError(w, statusOfSourceError(err), err.Error())
		return
	}
	e.logger.Info("source of KV events unregistered", "source", name, "peer", r.RemoteAddr)
	w.WriteHeader(http.StatusNoContent)
}

// admit reports whether sources may be registered, and otherwise writes the reply.
func (e *sourceEndpoints) admit(w http.ResponseWriter) bool {
	if !e.mayChange {
		statuspage.WriteError(w, http.StatusForbidden, "sources are not registered here: events.register is empty")
	}
	return e.mayChange
}

// statusOfSourceError returns the status of a request for a change of the sources that has failed.
func statusOfSourceError(err error) int {
	switch {
	case errors.Is(err, events.ErrNotAllowed):
		return http.StatusForbidden
	case errors.Is(err, events.ErrNoSource), errors.Is(err, feed.ErrNoPool):
		return http.StatusNotFound
	case errors.Is(err, events.ErrExists), errors.Is(err, events.ErrConfigured), errors.Is(err, lookup.ErrFed), errors.Is(err, events.ErrTooMany):
		return http.StatusConflict
	case errors.Is(err, events.ErrClosed):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// readJSON reads the body of a request into v. If it fails it returns the status of the reply.
func readJSON(w http.ResponseWriter, r *http.Request, v any) (code int, err error) {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSourceBody))
	body.DisallowUnknownFields()
	if err = body.Decode(v); err == nil {
		if _, err = body.Token(); errors.Is(err, io.EOF) {
			return 0, nil
		} else if err == nil {
			err = errors.New("more than one value")
		}
	}
	if errors.As(err, new(*http.MaxBytesError)) {
		return http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", maxSourceBody)
	}
	return http.StatusBadRequest, fmt.Errorf("the body cannot be read: %w", err)
}
