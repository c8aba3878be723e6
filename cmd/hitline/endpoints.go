package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hitline/hitline/lookup/metrics"
	"github.com/hitline/hitline/lookup/server"
)

// endpoints serves /metrics, /healthz and /readyz over HTTP.
type endpoints struct {
	httpServer *http.Server
	listener   net.Listener
	done       chan struct{} // closed when the goroutine that serves has returned
}

const (
	// maxScrapeConns bounds the HTTP connections: each takes a file descriptor that a
	// client of the lookup port could need.
	maxScrapeConns = 32
	// scrapeTimeout bounds one request.
	scrapeTimeout = 10 * time.Second
	// closeTimeout bounds how long close waits for requests in flight.
	closeTimeout = time.Second
	// idleTimeout is longer than the interval of scrapers, so that they keep a connection.
	idleTimeout = 2 * time.Minute
)

// openEndpoints binds the address and serves in the background until close.
func openEndpoints(address string, srv *server.Server, logger *slog.Logger) (*endpoints, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		metrics.NewServerCollector(srv),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("cannot register the metrics: %w", err)
		}
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, configError(fmt.Errorf("cannot listen for metrics: %w", err))
	}
	errorLog := slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
	e := &endpoints{
		listener: limitListener(listener, maxScrapeConns),
		done:     make(chan struct{}),
		httpServer: &http.Server{
			Handler:           endpointsMux(registry, srv.Ready, errorLogger{logger}),
			ReadHeaderTimeout: scrapeTimeout,
			ReadTimeout:       scrapeTimeout,
			WriteTimeout:      2 * scrapeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          errorLog,
		},
	}
	go func() {
		defer close(e.done)
		if err := e.httpServer.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("metrics are no longer served", "error", err)
		}
	}()
	return e, nil
}

// address returns the bound address.
func (e *endpoints) address() string { return e.listener.Addr().String() }

// close waits for requests in flight, at most closeTimeout, and for the goroutine.
func (e *endpoints) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := e.httpServer.Shutdown(ctx); err != nil {
		_ = e.httpServer.Close()
	}
	<-e.done
}

// endpointsMux returns the handler of the three paths.
func endpointsMux(gatherer prometheus.Gatherer, ready func() error, log promhttp.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		ErrorLog: log, MaxRequestsInFlight: 4, Timeout: scrapeTimeout,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, ready()) })
	return mux
}

// writeStatus writes ok, or status 503 with err.
func writeStatus(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	text := "ok"
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error()
	}
	_, _ = io.WriteString(w, text+"\n") // the client may be gone
}

// errorLogger logs the errors of scrapes. It is a promhttp.Logger.
type errorLogger struct{ log *slog.Logger }

func (l errorLogger) Println(v ...any) {
	l.log.Warn("metrics cannot be collected", "error", fmt.Sprint(v...))
}

// limitListener returns a listener that accepts at most n connections at a time. Unlike
// that of netutil, its Close ends an Accept that waits for a connection to close.
func limitListener(l net.Listener, n int) net.Listener {
	return &limitedListener{Listener: l, sem: make(chan struct{}, n), closed: make(chan struct{})}
}

type limitedListener struct {
	net.Listener
	sem    chan struct{} // has an element for each open connection
	closed chan struct{}
	once   sync.Once
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.sem <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.sem
		return nil, err
	}
	return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { <-l.sem })}, nil
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	release func() // idempotent
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
