package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// otherPath stands for paths that the handler of a FleetHTTP does not serve.
const otherPath = "other"

// FleetHTTP is an HTTP handler with metrics of its requests. It is a prometheus.Collector.
type FleetHTTP struct {
	handler  http.Handler
	paths    []string
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewFleetHTTP returns handler with metrics by paths, those that it serves.
func NewFleetHTTP(handler http.Handler, paths []string) *FleetHTTP {
	return &FleetHTTP{
		handler: handler, paths: paths,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hitline_fleet_http_requests_total", Help: "Requests over HTTP that were answered, by path and status.",
		}, []string{"path", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hitline_fleet_http_request_duration_seconds", Help: "From the end of a request's header until its handler returned.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 4, 9), // to 3.3 s
		}, []string{"path"}),
	}
}

// ServeHTTP implements http.Handler.
func (f *FleetHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	recorded := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
	path := r.URL.Path
	if !slices.Contains(f.paths, path) {
		path = otherPath
	}
	defer func() { // also if the handler panics to end the connection
		f.requests.WithLabelValues(path, strconv.Itoa(recorded.status)).Inc()
		f.duration.WithLabelValues(path).Observe(time.Since(begun).Seconds())
	}()
	f.handler.ServeHTTP(recorded, r)
}

// Describe implements prometheus.Collector.
func (f *FleetHTTP) Describe(out chan<- *prometheus.Desc) {
	f.requests.Describe(out)
	f.duration.Describe(out)
}

// Collect implements prometheus.Collector.
func (f *FleetHTTP) Collect(out chan<- prometheus.Metric) {
	f.requests.Collect(out)
	f.duration.Collect(out)
}

// statusRecorder is a ResponseWriter that remembers the status.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusRecorder) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the ResponseWriter, for http.ResponseController.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }
