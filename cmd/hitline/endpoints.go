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

// endpoints serve what operators and their tools ask over HTTP: /metrics, /healthz
// and /readyz.
type endpoints struct {
	server   *http.Server
	listener net.Listener
	done     chan struct{} // closed when the server's goroutine has returned
}

const (
	// maxScrapers bounds the HTTP connections: each takes a file descriptor that a
	// client of the lookup port could need.
	maxScrapers = 32
	// scrapePatience bounds one request, and the last ones when closing.
	scrapePatience, closePatience = 10 * time.Second, time.Second
)

// openEndpoints binds the address and serves in the background until close.
func openEndpoints(address string, server *server.Server, logger *slog.Logger) (*endpoints, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		metrics.NewServer(server),
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
		listener: limitListener(listener, maxScrapers),
		done:     make(chan struct{}),
		server: &http.Server{
			Handler:           endpointsMux(registry, server.Ready, errorLogger{logger}),
			ReadHeaderTimeout: scrapePatience,
			ReadTimeout:       scrapePatience,
			WriteTimeout:      2 * scrapePatience,
			IdleTimeout:       2 * time.Minute, // longer than scrapers wait in between
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          errorLog,
		},
	}
	go func() {
		defer close(e.done)
		if err := e.server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("metrics are no longer served", "error", err)
		}
	}()
	return e, nil
}

// address returns what is bound.
func (e *endpoints) address() string { return e.listener.Addr().String() }

// close lets requests under way finish, for a moment, and joins the goroutine.
func (e *endpoints) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if err := e.server.Shutdown(ctx); err != nil {
		_ = e.server.Close()
	}
	<-e.done
}

// endpointsMux returns what answers the three paths.
func endpointsMux(gatherer prometheus.Gatherer, ready func() error, log promhttp.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		ErrorLog: log, MaxRequestsInFlight: 4, Timeout: scrapePatience,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, ready()) })
	return mux
}

// answer says ok, or why not.
func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	text := "ok"
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error()
	}
	_, _ = io.WriteString(w, text+"\n") // whoever asked may be gone
}

// errorLogger passes on what goes wrong with a scrape.
type errorLogger struct{ log *slog.Logger }

func (l errorLogger) Println(v ...any) {
	l.log.Warn("metrics cannot be collected", "error", fmt.Sprint(v...))
}

// limitListener accepts while fewer than most of its connections are open.
func limitListener(l net.Listener, most int) net.Listener {
	return &limitedListener{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{})}
}

type limitedListener struct {
	net.Listener
	places chan struct{} // holds one for each open connection
	closed chan struct{}
	once   sync.Once
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: conn, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
