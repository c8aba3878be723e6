package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// metricsServer is a server in process with its endpoints.
type metricsServer struct {
	address, metrics string
	stop             func() // begins to drain
	code             chan int
}

func startWithMetrics(t *testing.T) *metricsServer {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	logReader, logWriter := io.Pipe()
	o := &metricsServer{stop: stop, code: make(chan int, 1)}
	go func() {
		args := []string{"serve", "--listen", "tcp://127.0.0.1:0", "--config", configFile(t, "log: {format: json}\nmetrics: 127.0.0.1:0\n")}
		o.code <- run(ctx, args, nil, io.Discard, logWriter)
		logWriter.Close()
	}()
	log := bufio.NewScanner(logReader)
	for o.address == "" && log.Scan() {
		var line struct {
			Msg, Metrics string
			Listen       []string
		}
		require.NoError(t, json.Unmarshal(log.Bytes(), &line), log.Text())
		if line.Msg == "ready" {
			o.address, o.metrics = line.Listen[0], line.Metrics
		}
	}
	require.NotEmpty(t, o.address, "the server ended without being ready")
	go func() { _, _ = io.Copy(io.Discard, logReader) }()
	return o
}

// get returns the status and the body of a path.
func (o *metricsServer) get(t *testing.T, method, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+o.metrics+path, nil)
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

func TestEndpoints(t *testing.T) {
	o := startWithMetrics(t)
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
	status, _ = o.get(t, "GET", "/")
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
	assert.Equal(t, exitDone, <-o.code)
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
	assert.Equal(t, result{exitUsage, "", "hitline: cannot listen for metrics: listen tcp " + address + ": bind: address already in use\n"}, got)
}

func TestReadyzSaysWhy(t *testing.T) {
	why := errors.New("not ready: no disk")
	mux := endpointsMux(prometheus.NewRegistry(), func() error { return why }, errorLogger{})
	for path, want := range map[string]int{"/readyz": 503, "/healthz": 200} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, want, w.Code, path)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	assert.Equal(t, why.Error()+"\n", w.Body.String())
}

func TestLimitListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := limitListener(inner, 2)
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	for range 3 {
		conn, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
	}
	next := func() net.Conn {
		t.Helper()
		select {
		case conn := <-accepted:
			return conn
		case <-time.After(20 * time.Second):
			t.Fatal("no connection was accepted")
			return nil
		}
	}
	first, second := next(), next()
	defer second.Close()
	select {
	case <-accepted:
		t.Fatal("a third connection was accepted")
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, first.Close())
	require.Error(t, first.Close()) // frees one connection, not two
	third := next()
	defer third.Close()
	require.NoError(t, l.Close()) // also while Accept waits for a connection to close
	require.Nil(t, next(), "accepting is over")
}
