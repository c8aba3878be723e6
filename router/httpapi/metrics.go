package httpapi

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	m.requests.Describe(out)
	m.duration.Describe(out)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.requests.Collect(out)
	m.duration.Collect(out)
}

// count returns a handler whose requests are counted with a path.
func (m *metrics) count(path string, handler http.HandlerFunc) http.Handler {
	label := prometheus.Labels{"path": path}
	return promhttp.InstrumentHandlerDuration(m.duration.MustCurryWith(label), promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(label), handler))
}
