package httpapi

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// otherPath is the label of paths that are not served, so that clients make no metrics.
const otherPath = "other"

// metrics are those of a Handler's requests.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics() metrics {
	return metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hitline_router_http_requests_total", Help: "Requests over HTTP that were answered, by path and status.",
		}, []string{"path", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hitline_router_http_request_duration_seconds", Help: "From the end of a request's header until its reply was written.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 4, 9), // to 3.3 s
		}, []string{"path"}),
	}
}

// Describe implements prometheus.Collector.
func (h *Handler) Describe(out chan<- *prometheus.Desc) {
	h.metrics.requests.Describe(out)
	h.metrics.duration.Describe(out)
}

// Collect implements prometheus.Collector.
func (h *Handler) Collect(out chan<- prometheus.Metric) {
	h.metrics.requests.Collect(out)
	h.metrics.duration.Collect(out)
}

// observe counts a request that has been answered. e is nil for a path that is not served.
func (m *metrics) observe(e *endpoint, status int, begun time.Time) {
	path := otherPath
	if e != nil {
		path = e.path
	}
	m.requests.WithLabelValues(path, strconv.Itoa(cmp.Or(status, http.StatusOK))).Inc()
	m.duration.WithLabelValues(path).Observe(time.Since(begun).Seconds())
}

// statusWriter remembers the status of a reply.
type statusWriter struct {
	http.ResponseWriter
	status int // 0: none was set, which is 200
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
