package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hitline/hitline/router/httpapi"
)

// otherPath stands for paths that are not served.
const otherPath = "other"

// RouterHTTP is an HTTP handler with metrics of its requests. It is a prometheus.Collector.
type RouterHTTP struct {
	handler  http.Handler
	paths    []string
	requests func() []httpapi.RequestCount
	duration *prometheus.HistogramVec
}

var routerRequests = describe("router_http_requests_total", "Requests over HTTP that were answered, by path and status.", "path", "code")

// NewRouterHTTP returns handler with metrics. requests returns the counts of an httpapi.Handler, paths are those that
// it serves.
func NewRouterHTTP(handler http.Handler, requests func() []httpapi.RequestCount, paths []string) *RouterHTTP {
	return &RouterHTTP{
		handler: handler, paths: paths, requests: requests,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hitline_router_http_request_duration_seconds", Help: "From the end of a request's header until its reply was written.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 4, 9), // to 3.3 s
		}, []string{"path"}),
	}
}

// ServeHTTP implements http.Handler.
func (f *RouterHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	path := r.URL.Path
	if !slices.Contains(f.paths, path) {
		path = otherPath
	}
	defer func() { f.duration.WithLabelValues(path).Observe(time.Since(begun).Seconds()) }() // also after a panic
	f.handler.ServeHTTP(w, r)
}

// Describe implements prometheus.Collector.
func (f *RouterHTTP) Describe(out chan<- *prometheus.Desc) {
	out <- routerRequests
	f.duration.Describe(out)
}

// Collect implements prometheus.Collector.
func (f *RouterHTTP) Collect(out chan<- prometheus.Metric) {
	for _, r := range f.requests() {
		out <- prometheus.MustNewConstMetric(routerRequests, prometheus.CounterValue, float64(r.Count), r.Path, strconv.Itoa(r.Status))
	}
	f.duration.Collect(out)
}
