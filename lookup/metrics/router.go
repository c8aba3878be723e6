package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hitline/hitline/router"
)

// Labels of a model.
const (
	modelLabel  = "model"
	tenantLabel = "tenant"
)

// routerMetric is a figure of a model as a metric.
type routerMetric struct {
	desc  *prometheus.Desc
	value func(st *router.ModelStatus) float64
}

func routerGauge(name, help string, value func(st *router.ModelStatus) float64) routerMetric {
	return routerMetric{describe("router_"+name, help, modelLabel, tenantLabel), value}
}

var routerMetrics = []routerMetric{
	routerGauge("holders", "Ranks of engines that are known.", func(st *router.ModelStatus) float64 { return float64(len(st.Holders)) }),
	routerGauge("stale_holders", "Those that count for nothing but what is predicted: events may be missing, or no source fills them.", func(st *router.ModelStatus) float64 {
		return float64(st.NumStale())
	}),
	routerGauge("blocks", "Different block hashes that holders have.", func(st *router.ModelStatus) float64 { return float64(st.Blocks) }),
	routerGauge("entries", "Blocks of each holder and medium, predicted ones included.", func(st *router.ModelStatus) float64 { return float64(st.Entries) }),
	routerGauge("holder_sets", "Different sets of holders that have a block.", func(st *router.ModelStatus) float64 { return float64(st.Sets) }),
	routerGauge("bytes", "Memory that this takes.", func(st *router.ModelStatus) float64 { return float64(st.Bytes) }),
	routerGauge("max_bytes", "Bound on hitline_router_bytes.", func(st *router.ModelStatus) float64 { return float64(st.MaxBytes) }),
}

// RouterCollector collects the metrics of the models of a router.Service.
type RouterCollector struct{ models func() []router.ModelStatus }

// NewRouterCollector returns the collector of the Models of a router.Service.
func NewRouterCollector(models func() []router.ModelStatus) *RouterCollector {
	return &RouterCollector{models}
}

// Describe implements prometheus.Collector.
func (c *RouterCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range routerMetrics {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *RouterCollector) Collect(out chan<- prometheus.Metric) {
	for _, st := range c.models() {
		for _, m := range routerMetrics {
			out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, m.value(&st), st.Name, st.Tenant)
		}
	}
}
