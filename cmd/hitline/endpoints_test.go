package main

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
)

func TestEndpoints(t *testing.T) {
	o := startServe(t, metricsHere)
	wants := func(path string, status int, text string) {
		t.Helper()
		got, body := o.get(t, "GET", path)
		assert.Equal(t, status, got, path)
		assert.Equal(t, text, body, path)
	}
	wants("/healthz", 200, "ok\n")
	wants("/readyz", 200, "ok\n")
	status, body := o.get(t, "GET", "/metrics")
	assert.Equal(t, 200, status)
	for _, name := range []string{"\nhitline_ready 1\n", "\nhitline_lookups_total{pool=\"\"} 0\n", "\ngo_goroutines ", "\nprocess_open_fds ", "\nprocess_max_fds "} {
		assert.Contains(t, body, name)
	}
	status, _ = o.get(t, "GET", "/config")
	assert.Equal(t, 404, status)
	status, _ = o.get(t, "POST", "/metrics")
	assert.Equal(t, 405, status)

	// While requests in flight finish, the server is not ready for new clients.
	conn := beginPing(t, o.address)
	o.stop()
	require.Eventually(t, func() bool { status, _ := o.get(t, "GET", "/readyz"); return status == 503 }, 20*time.Second, time.Millisecond)
	wants("/readyz", 503, "not ready: draining\n")
	wants("/healthz", 200, "ok\n")
	_, body = o.get(t, "GET", "/metrics")
	assert.Contains(t, body, "\nhitline_ready 0\n")
	_, err := io.WriteString(conn, "ng\x00\x00")
	require.NoError(t, err)
	<-o.done
	_, err = net.Dial("tcp", o.metrics)
	assert.Error(t, err, "the endpoints are closed with the server")
}

// An address for the endpoints that cannot be bound is a mistake in the
// configuration, and nothing else has been opened.
func TestEndpointsBindFailure(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	address := taken.Addr().String()
	t.Setenv("HITLINE_METRICS", address)
	got := hitline(t, "", "serve", "--listen", "tcp://127.0.0.1:0")
	assert.Equal(t, result{exitFailed, "", "hitline: metrics: " + address + " is in use; give another address\n"}, got)
}

func TestReadyzSaysWhy(t *testing.T) {
	why := errors.New("not ready: no disk")
	var store error
	mux := endpointsMux(prometheus.NewRegistry(), func() error { return why }, func() error { return store }, errorLogger{})
	for path, want := range map[string]int{"/readyz": 503, "/healthz": 200} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, want, w.Code, path)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	assert.Equal(t, why.Error()+"\n", w.Body.String())

	why, store = nil, errors.New("unavailable: no network")
	w = httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	assert.Equal(t, http.StatusOK, w.Code, "one failed call takes no server out of service")
	assert.Equal(t, "ok, but the latest call of the store failed: unavailable: no network\n", w.Body.String())
}

// oddCollector panics while odd is set.
type oddCollector struct {
	prometheus.Gauge
	odd *bool
}

func (c oddCollector) Collect(out chan<- prometheus.Metric) {
	if *c.odd {
		panic("odd metric")
	}
	c.Gauge.Collect(out)
}

// A panic of a collector or a handler ends one request, and is logged with where it was.
func TestPanicOfAnEndpoint(t *testing.T) {
	log, logger := lookuptest.NewLog(slog.LevelWarn)
	odd := true
	registry := prometheus.NewRegistry()
	registry.MustRegister(recoveringCollector{oddCollector{prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"}), &odd}})
	mux := endpointsMux(registry, func() error {
		if odd {
			panic("odd state")
		}
		return nil
	}, func() error { return nil }, errorLogger{logger})
	handler := newHTTPServer(mux, func() bool { return false }, logger).Handler
	get := func(path string) int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	for path, what := range map[string]string{"/metrics": "odd metric", "/readyz": "odd state"} {
		assert.Equal(t, http.StatusInternalServerError, get(path))
		lines := log.Take()
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "a fault of hitline, please report it: "+what+", at ")
	}
	odd = false
	assert.Equal(t, http.StatusOK, get("/metrics"))
	assert.Equal(t, http.StatusOK, get("/readyz"))
}

// A scrape that takes long, and clients that do not read their reply, do not delay health.
func TestHealthBesideScrapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		registry := prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "g"}, func() float64 { <-blocked; return 1 }))
		s := startHTTP(t, maxMetricsConns, endpointsMux(registry, func() error { return nil }, func() error { return nil }, errorLogger{slog.New(slog.DiscardHandler)}))
		for range maxMetricsConns {
			s.dial("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
		}
		begin := time.Now()
		assert.Equal(t, 503, s.clients[4].status(), "the fifth scrape")
		assert.Equal(t, begin, time.Now(), "it waits for no other")
		for _, path := range []string{"/healthz", "/readyz"} {
			conn := s.dial("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
			assert.Equal(t, 200, conn.status(), path)
			conn.Close()
		}
		close(blocked)
		s.wait(replyTimeout) // no reply was read
		assert.Empty(t, s.open())
		conn := s.dial("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
		assert.Equal(t, 200, conn.status())
	})
}
