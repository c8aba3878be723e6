package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/status"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/httpguard"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// get is send without a body.
func (s *testServer) get(t *testing.T, method, path string) (int, string) {
	t.Helper()
	return s.send(t, method, path, "")
}

// send returns the status and the body of a request at the metrics address with headers, each as "Name: value".
func (s *testServer) send(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.metrics+path, strings.NewReader(body))
	require.NoError(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			request.Host = value
		}
		request.Header.Set(name, value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	reply, err := client.Do(request)
	require.NoError(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	return reply.StatusCode, string(text)
}

// /status is ready as /readyz, and has the pools.
func TestStatus(t *testing.T) {
	o := startServe(t, metricsHere+"pools: {a: {model_name: m}}\n")
	read := func() (st status.Status) {
		code, text := o.send(t, "GET", "/status", "")
		require.Equal(t, 200, code)
		require.NoError(t, json.Unmarshal([]byte(text), &st))
		return st
	}
	st := read()
	assert.True(t, st.Ready)
	require.Len(t, st.Pools, 1)
	assert.Equal(t, []any{"a", "m", 16, false}, []any{st.Pools[0].Name, st.Pools[0].Model, st.Pools[0].HashBlockSize, st.Pools[0].Described})
	assert.Nil(t, st.Router)
	for _, path := range []string{"/none", "/status/", "/explain", "/favicon.ico", "/debug/pprof/", "/debug/pprof/heap"} {
		code, text := o.send(t, "GET", path, "")
		assert.Equal(t, 404, code, path)
		assert.Equal(t, strings.HasPrefix(path, "/debug"), strings.Contains(text, "pprof is false"), path)
	}

	beginPing(t, o.address) // a request that is never finished keeps the server draining
	assert.EqualValues(t, 1, read().Stat.Connections)
	o.stop()
	require.Eventually(t, func() bool { return !read().Ready }, 20*time.Second, time.Millisecond)
	assert.Equal(t, "draining", read().NotReadyReason)
}

// A reply that finds all places taken is refused at once.
func TestStatusBusy(t *testing.T) {
	w := httptest.NewRecorder()
	(&statusHandler{places: make(chan struct{})}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/status", nil))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
}

// Profiles are served if the configuration says so, and on loopback to this machine alone.
func TestProfiles(t *testing.T) {
	o := startServe(t, metricsHere+"pprof: true\n")
	code, text := o.send(t, "GET", "/debug/pprof/", "")
	assert.Equal(t, 200, code)
	assert.Contains(t, text, "goroutine")
	code, text = o.send(t, "GET", "/debug/pprof/goroutine?debug=1", "")
	assert.Equal(t, 200, code)
	assert.Contains(t, text, "goroutine profile: total")
	for path, want := range map[string]int{"cmdline": 200, "symbol": 200, "none": 404} {
		code, _ = o.send(t, "GET", "/debug/pprof/"+path, "")
		assert.Equal(t, want, code, path)
	}
	code, _ = o.send(t, "GET", "/none", "")
	assert.Equal(t, 404, code)
}

// What a listener answers to a name that is not its own. Closing ends all goroutines.
func TestEndpointOptions(t *testing.T) {
	service, err := lookup.NewService(lookup.ServiceConfig{})
	require.NoError(t, err)
	srv, err := server.New(service, server.Config{})
	require.NoError(t, err)
	for _, test := range []struct {
		options endpointOptions
		want    int
	}{
		{endpointOptions{guard: httpguard.Guard{Local: true}, pprof: true}, 403},
		{endpointOptions{guard: httpguard.Guard{Hosts: []string{"h"}}, pprof: true}, 403},
		{endpointOptions{guard: httpguard.Guard{Hosts: []string{"hitline.example"}}, pprof: true}, 200},
		{endpointOptions{pprof: true}, 200},
	} {
		before := runtime.NumGoroutine()
		test.options.cpu, test.options.status = cpushare.New(1), status.NewCollector(srv, nil, slog.New(slog.DiscardHandler))
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		e := openEndpoints(listener, srv, test.options, slog.New(slog.DiscardHandler))
		o := &testServer{metrics: e.address}
		for _, path := range []string{"/", "/status", "/metrics", "/healthz", "/readyz", "/debug/pprof/"} {
			want := test.want
			if path == "/readyz" && want == 200 {
				want = 503 // it has not started
			}
			code, _ := o.send(t, "GET", path, "", "Host: hitline.example")
			assert.Equal(t, want, code, "%s %+v", path, test.options)
		}
		e.close()
		storetest.Eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	}
}

// No page of another site asks at the two ports that speak HTTP, whatever the path: neither by a name that resolves to this
// machine, nor by what browsers fetch without being asked whether they may. Programs are answered as ever.
func TestOtherSites(t *testing.T) {
	o := startServe(t, metricsHere+"pprof: true\nrouter: {listen: \"127.0.0.1:0\", models: [{name: m, block_size: 16}]}\n")
	router := &testServer{metrics: o.router}
	const link = "Sec-Fetch-Site: cross-site, Sec-Fetch-Mode: navigate, Sec-Fetch-Dest: document"
	for _, test := range []struct {
		server *testServer
		paths  []string
		linked int // what a link on another site leads to
	}{
		{o, []string{"/", "/metrics", "/healthz", "/readyz"}, 200},
		{o, []string{"/status", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"}, 403},
		{router, []string{"/health", "/ready", "/openapi.yaml"}, 200},
		{router, []string{"/services", "/dump"}, 403},
	} {
		for _, path := range test.paths {
			for headers, want := range map[string]int{
				"Accept: */*":        200,
				"Host: evil.example": 403,
				"Sec-Fetch-Site: cross-site, Sec-Fetch-Mode: no-cors, Sec-Fetch-Dest: image": 403,
				link: test.linked,
			} {
				code, _ := test.server.send(t, "GET", path, "", strings.Split(headers, ", ")...)
				assert.Equal(t, want, code, "%s with %s", path, headers)
			}
		}
	}
	for path, server := range map[string]*testServer{"/none": o, "/query": router, "/register": router, "/nothing": router} {
		for _, headers := range []string{"Host: evil.example", link} {
			for _, method := range []string{"GET", "POST"} {
				code, _ := server.send(t, method, path, "{}", strings.Split("Content-Type: application/json, "+headers, ", ")...)
				assert.Equal(t, 403, code, "%s %s", path, headers)
			}
		}
	}
}
