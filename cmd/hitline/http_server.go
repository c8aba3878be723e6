package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/requesterror"
)

const (
	// headerTimeout bounds the time until the header of a request has arrived.
	headerTimeout = 3 * time.Second
	// requestTimeout bounds the time until a request has arrived, body included, and then
	// that until its reply is computed.
	requestTimeout = 5 * time.Second
	// replyTimeout bounds the time from the end of a request's header to the end of the reply.
	replyTimeout = 10 * time.Second
	// idleTimeout is longer than the interval of scrapers, so that they keep a connection.
	idleTimeout = 90 * time.Second
	// maxHeaderBytes bounds the header of a request. Package net/http reads 4 KiB more.
	maxHeaderBytes = 4 << 10
	// closeTimeout bounds how long close waits for requests in flight.
	closeTimeout = time.Second
)

// newHTTPServer returns a server for the listener of an httpListener. While it drains, each reply closes its connection.
func newHTTPServer(handler http.Handler, draining func() bool, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           outerHandler{handler, draining, logger},
		ConnState:         setConnState,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      replyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// outerHandler is around all others: it answers with status 500 after a panic, and logs it.
type outerHandler struct {
	http.Handler
	draining func() bool
	logger   *slog.Logger
}

// ServeHTTP implements http.Handler.
func (h outerHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.draining() {
		w.Header().Set("Connection", "close")
	}
	defer func() {
		switch why := recover(); why {
		case nil:
		case http.ErrAbortHandler:
			panic(why)
		default:
			h.logger.Error("an HTTP request failed", "path", r.URL.Path, "error", requesterror.Fault(why))
			http.Error(w, "an error of the server, which its log has", http.StatusInternalServerError)
		}
	}()
	h.Handler.ServeHTTP(w, r)
}

// httpServer serves HTTP at one address in the background. Its methods do nothing if it is nil.
type httpServer struct {
	http    *http.Server
	address string        // that is bound
	done    chan struct{} // closed when the goroutine that serves has returned
}

// httpListener is what an httpServer serves at.
type httpListener struct {
	field    string // where the address is configured
	bound    net.Listener
	maxConns int             // that may be open
	cpu      *cpushare.Share // what its connections compute on
	secure   *tls.Config     // nil without TLS
	probes   []string        // see cpushare.Share.Bind
}

// listen returns the listener of a server.
func (l *httpListener) listen(s *http.Server) net.Listener {
	listener := l.cpu.Bind(s, newEvictingListener(l.bound, l.maxConns), l.field, l.probes...)
	if l.secure != nil {
		return tls.NewListener(listener, l.secure)
	}
	return listener
}

// serveHTTP serves until close or shutdown.
func serveHTTP(s *http.Server, l *httpListener, logger *slog.Logger) *httpServer {
	h := &httpServer{http: s, address: l.bound.Addr().String(), done: make(chan struct{})}
	listener := l.listen(s)
	go func() {
		defer close(h.done)
		if err := requesterror.Call(func() error { return s.Serve(listener) }); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("an HTTP address is no longer served", "field", l.field, "error", err)
		}
	}()
	return h
}

// close is shutdown within closeTimeout.
func (h *httpServer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = h.shutdown(ctx)
}

// shutdown ends accepting, waits for requests in flight until ctx ends, and for the goroutine.
func (h *httpServer) shutdown(ctx context.Context) error {
	if h == nil {
		return nil
	}
	err := h.http.Shutdown(ctx)
	if err != nil {
		_ = h.http.Close()
	}
	<-h.done
	return err
}
