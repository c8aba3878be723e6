package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hitline/hitline/lookup/holders/httpapi"
)

// otherPath stands for paths that are not served.
const otherPath = "other"

// FleetHTTP is an HTTP handler with metrics of its requests. It is a prometheus.Collector.
type FleetHTTP struct {
	handler  http.Handler
	paths    []string
	requests func() []httpapi.RequestCount
	duration *prometheus.HistogramVec
}

var fleetRequests = describe("fleet_http_requests_total", "Requests over HTTP that were answered, by path and status.", "path", "code")

// NewFleetHTTP returns handler with metrics. requests returns the counts of an httpapi.Handler, paths are those that
// it serves.
func NewFleetHTTP(handler http.Handler, requests func() []httpapi.RequestCount, paths []string) *FleetHTTP {
	return &FleetHTTP{
		handler: handler, paths: paths, requests: requests,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hitline_fleet_http_request_duration_seconds", Help: "From the end of a request's header until its reply was written.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 4, 9), // to 3.3 s
		}, []string{"path"}),
	}
}

// ServeHTTP implements http.Handler.
func (f *FleetHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	path := r.URL.Path
	if !slices.Contains(f.paths, path) {
		path = otherPath
	}
	defer func() { f.duration.WithLabelValues(path).Observe(time.Since(begun).Seconds()) }() // also after a panic
	f.handler.ServeHTTP(w, r)
}

// Describe implements prometheus.Collector.
func (f *FleetHTTP) Describe(out chan<- *prometheus.Desc) {
	out <- fleetRequests
	f.duration.Describe(out)
}

// Collect implements prometheus.Collector.
func (f *FleetHTTP) Collect(out chan<- prometheus.Metric) {
	for _, r := range f.requests() {
		out <- prometheus.MustNewConstMetric(fleetRequests, prometheus.CounterValue, float64(r.Count), r.Path, strconv.Itoa(r.Status))
	}
	f.duration.Collect(out)
}
