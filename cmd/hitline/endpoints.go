package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hitline/hitline/cmd/hitline/internal/status"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/httpguard"
	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup/metrics"
	"github.com/hitline/hitline/lookup/server"
)

// endpointOptions say how /metrics, /status, /healthz and /readyz are served, and what with them.
type endpointOptions struct {
	pprof      bool
	guard      httpguard.Guard // without Links
	cpu        *cpushare.Share // see httpListener
	status     *status.Collector
	collectors []prometheus.Collector // of further metrics
}

const (
	// maxMetricsConns bounds the HTTP connections of metrics: each takes a file descriptor that a client of
	// the lookup port could need.
	maxMetricsConns = 64
	// minConnAge is the time that a connection has to send a request before it may be closed
	// in favour of another. With maxMetricsConns it bounds the connections accepted each second:
	// 1,000 silent ones delay the next by less than a second.
	minConnAge = 50 * time.Millisecond
	// maxScrapes bounds the scrapes that are computed at a time. Further ones get status 503.
	maxScrapes = 4
)

// openEndpoints serves in the background until close.
func openEndpoints(listener net.Listener, srv *server.Server, options endpointOptions, logger *slog.Logger) *httpServer {
	registry := prometheus.NewRegistry()
	for _, c := range options.allCollectors(srv) {
		registry.MustRegister(recoveringCollector{c})
	}
	mux := endpointsMux(registry, srv.Ready, srv.BackendFailure, errorLogger{logger})
	mux.Handle("GET /status", &statusHandler{options.status, make(chan struct{}, maxStatus)})
	mux.Handle("GET /{$}", &status.Page{Collector: options.status})
	if options.pprof {
		handleProfiles(mux)
	} else {
		mux.HandleFunc("/debug/pprof/", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "profiles are not served: pprof is false", http.StatusNotFound)
		})
	}
	guard := options.guard
	guard.Links = []string{"/", "/metrics", "/healthz", "/readyz"}
	return serveHTTP(newHTTPServer(guard.Handler(mux), srv.Draining, logger), &httpListener{
		field: "metrics", bound: listener, maxConns: httpConns(maxMetricsConns, server.OpenFileLimit()), cpu: options.cpu,
		probes: []string{"/healthz", "/readyz"},
	}, logger)
}

// allCollectors returns those of the metrics.
func (o *endpointOptions) allCollectors(srv *server.Server) []prometheus.Collector {
	all := []prometheus.Collector{
		metrics.NewServerCollector(srv),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
	return append(all, o.collectors...)
}

// recoveringCollector makes an error of a panic in a collector. The registry collects on goroutines of its own.
type recoveringCollector struct{ prometheus.Collector }

// Collect implements prometheus.Collector.
func (c recoveringCollector) Collect(out chan<- prometheus.Metric) {
	if err := requesterror.Run(func() { c.Collector.Collect(out) }); err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
	}
}

// endpointsMux returns the handler of the three paths. A scrape is computed into memory
// before it is sent, so a client that does not read holds none of maxScrapes. /healthz and
// /readyz wait for no scrape. /readyz is ready with a failed call of the store, and says so.
func endpointsMux(gatherer prometheus.Gatherer, ready, storeFailure func() error, log promhttp.Logger) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		ErrorLog: log, MaxRequestsInFlight: maxScrapes, Timeout: requestTimeout,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, nil, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, ready(), storeFailure()) })
	return mux
}

// handleProfiles serves Go's profiles. They sleep while a profile is taken, and hold no processor.
func handleProfiles(mux *http.ServeMux) {
	for path, handler := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.HandleFunc("/debug/pprof/"+path, func(w http.ResponseWriter, r *http.Request) {
			defer cpushare.Pause(r.Context())()
			handler(w, r)
		})
	}
}

// writeStatus writes ok, or status 503 with err.
func writeStatus(w http.ResponseWriter, err, warning error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "ok"
	switch {
	case err != nil:
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error()
	case warning != nil:
		text = "ok, but the latest call of the store failed: " + warning.Error()
	}
	_, _ = io.WriteString(w, text+"\n") // the client may be gone
}

// errorLogger logs the errors of scrapes. It is a promhttp.Logger.
type errorLogger struct{ log *slog.Logger }

func (l errorLogger) Println(v ...any) {
	l.log.Warn("metrics cannot be collected", "error", fmt.Sprint(v...))
}
