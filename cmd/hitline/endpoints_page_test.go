package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/httpguard"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/lookup/snapshot"
)

// send returns the status and the body of a request with headers, each as "Name: value".
func (o *metricsServer) send(t *testing.T, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+o.metrics+path, strings.NewReader(body))
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

// The page is served beside the other paths, ready as /readyz, and to this machine alone.
func TestStatusPage(t *testing.T) {
	o := startWithMetrics(t, "pools: {a: {}}\n")
	code, page := o.send(t, "GET", "/", "")
	assert.Equal(t, 200, code)
	assert.Contains(t, page, `<body data-state="loading">`)
	code, text := o.send(t, "GET", "/status", "")
	assert.Equal(t, 200, code)
	var st struct {
		Ready          bool
		NotReadyReason string `json:"not_ready_reason"`
		Pools          []struct{ Name string }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &st))
	assert.True(t, st.Ready)
	assert.Len(t, st.Pools, 1)

	const jsonBody = "Content-Type: application/json"
	code, text = o.send(t, "POST", "/explain", `{"pool": "a", "hashes": ["00", "01"]}`, jsonBody)
	assert.Equal(t, 200, code, text)
	assert.Contains(t, text, `"tokens":32`)
	code, _ = o.send(t, "POST", "/explain", "{}", jsonBody, "Origin: http://evil.example")
	assert.Equal(t, 403, code)
	for _, path := range []string{"/status/", "/favicon.ico", "/debug/pprof/", "/debug/pprof/heap"} {
		code, text = o.send(t, "GET", path, "")
		assert.Equal(t, 404, code, path)
		assert.Equal(t, strings.HasPrefix(path, "/debug"), strings.Contains(text, "pprof is false"), path)
	}

	beginPing(t, o.address) // a request that is never finished keeps the server draining
	o.stop()
	require.Eventually(t, func() bool { code, _ := o.send(t, "GET", "/readyz", ""); return code == 503 }, 20*time.Second, time.Millisecond)
	_, text = o.send(t, "GET", "/status", "")
	require.NoError(t, json.Unmarshal([]byte(text), &st))
	assert.False(t, st.Ready)
	assert.Equal(t, "draining", st.NotReadyReason)
}

func TestStatusPageOff(t *testing.T) {
	o := startWithMetrics(t, "status_page: false\n")
	for _, path := range []string{"/", "/status", "/explain"} {
		for _, method := range []string{"GET", "POST"} {
			code, text := o.send(t, method, path, "")
			assert.Equal(t, 404, code, path)
			assert.Contains(t, text, "status_page is false", path)
		}
	}
}

// Profiles are served if the configuration says so, and on loopback to this machine alone.
func TestProfiles(t *testing.T) {
	o := startWithMetrics(t, "pprof: true\nstatus_page: false\n")
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
	code, _ = o.send(t, "GET", "/", "")
	assert.Equal(t, 404, code)
}

// What a listener that is not on loopback serves. Closing ends all goroutines.
func TestEndpointOptions(t *testing.T) {
	service, err := lookup.NewService(lookup.ServiceConfig{})
	require.NoError(t, err)
	srv, err := server.New(service, server.Config{})
	require.NoError(t, err)
	for _, test := range []struct {
		options endpointOptions
		host    int // status of / and of /debug/pprof/ for a foreign host
	}{
		{endpointOptions{}, 404},
		{endpointOptions{guard: httpguard.Guard{Local: true}, pprof: true, statusPage: true}, 403},
		{endpointOptions{guard: httpguard.Guard{Hosts: []string{"h"}}, pprof: true, statusPage: true}, 403},
		{endpointOptions{guard: httpguard.Guard{Hosts: []string{"hitline.example"}}, pprof: true, statusPage: true}, 200},
		{endpointOptions{pprof: true, statusPage: true}, 200},
	} {
		before := runtime.NumGoroutine()
		test.options.cpu = cpushare.New(1)
		test.options.snapshot = func() *snapshot.Status { return &snapshot.Status{Path: "/a/path"} }
		e, err := openEndpoints("127.0.0.1:0", srv, test.options, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		o := &metricsServer{metrics: e.address}
		for _, path := range []string{"/", "/debug/pprof/"} {
			code, _ := o.send(t, "GET", path, "", "Host: hitline.example")
			assert.Equal(t, test.host, code, "%s %+v", path, test.options)
		}
		_, text := o.send(t, "GET", "/status", "")
		assert.Equal(t, test.options.statusPage, strings.Contains(text, `"snapshot":{"path":"/a/path"`))
		e.close()
		storetest.Eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	}
}

// No page of another site asks at the two ports that speak HTTP, whatever the path: neither by a name that resolves to this
// machine, nor by what browsers fetch without being asked whether they may. Programs are answered as ever.
func TestOtherSites(t *testing.T) {
	o := startWithMetrics(t, "pprof: true\nrouter: {listen: \"127.0.0.1:0\", models: [{name: m, block_size: 16}]}\n")
	router := &metricsServer{metrics: o.router}
	const link = "Sec-Fetch-Site: cross-site, Sec-Fetch-Mode: navigate, Sec-Fetch-Dest: document"
	for _, test := range []struct {
		server *metricsServer
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
	for path, server := range map[string]*metricsServer{"/none": o, "/explain": o, "/query": router, "/register": router, "/nothing": router} {
		for _, headers := range []string{"Host: evil.example", link} {
			for _, method := range []string{"GET", "POST"} {
				code, _ := server.send(t, method, path, "{}", strings.Split("Content-Type: application/json, "+headers, ", ")...)
				assert.Equal(t, 403, code, "%s %s", path, headers)
			}
		}
	}
}

// What the page tells of snapshots is that of the server's.
func TestStatusPageOfSnapshots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	o := startWithMetrics(t, "backend: {memory: {snapshot: {path: "+path+"}}}\n")
	_, text := o.send(t, "GET", "/status", "")
	assert.Contains(t, text, `"snapshot":{"path":"`+path+`"`)
	_, text = o.send(t, "GET", "/metrics", "")
	assert.Contains(t, text, "\nhitline_snapshot_last_entries 0\n")
}
