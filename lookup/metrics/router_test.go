package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router/httpapi"
)

// Requests have their counts by path and status, and durations by path. What is no path has one name, so that clients make
// no metrics.
func TestRouterHTTP(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/dump" {
			panic(http.ErrAbortHandler)
		}
	})
	var counts []httpapi.RequestCount
	h := NewRouterHTTP(handler, func() []httpapi.RequestCount { return counts }, []string{"/query", "/dump"})
	got, _ := scrape(t, h)
	require.Empty(t, got)
	for _, path := range []string{"/query", "/query?a", "/x", "/y"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, nil))
	}
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/dump", nil)) })
	counts = []httpapi.RequestCount{{Path: "/query", Status: 200, Count: 2}, {Path: "other", Status: 404, Count: 3}}
	got, names := scrape(t, h)
	require.Equal(t, namesOfRouterHTTP, names)
	for name, value := range map[string]float64{
		`router_http_requests_total{code="200",path="/query"}`: 2, `router_http_requests_total{code="404",path="other"}`: 3,
		`router_http_request_duration_seconds_count{path="/query"}`: 2, `router_http_request_duration_seconds_count{path="/dump"}`: 1,
		`router_http_request_duration_seconds_count{path="other"}`: 2,
	} {
		require.Equal(t, value, got[name], name)
	}
	require.Len(t, got, 2+3*(10+2))
}
