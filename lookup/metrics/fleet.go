package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hitline/hitline/lookup/holders"
)

// Labels of a model.
const (
	modelLabel  = "model"
	tenantLabel = "tenant"
)

// fleetMetric is a figure of a model as a metric.
type fleetMetric struct {
	desc  *prometheus.Desc
	value func(st *holders.ModelStatus) float64
}

func fleetGauge(name, help string, value func(st *holders.ModelStatus) float64) fleetMetric {
	return fleetMetric{describe("fleet_"+name, help, modelLabel, tenantLabel), value}
}

var fleetMetrics = []fleetMetric{
	fleetGauge("holders", "Ranks of engines that are known.", func(st *holders.ModelStatus) float64 { return float64(len(st.Holders)) }),
	fleetGauge("stale_holders", "Those that count for nothing but what is predicted: events may be missing, or no source fills them.", func(st *holders.ModelStatus) float64 {
		return float64(st.NumStale())
	}),
	fleetGauge("blocks", "Different block hashes that holders have.", func(st *holders.ModelStatus) float64 { return float64(st.Blocks) }),
	fleetGauge("entries", "Blocks of each holder and medium, predicted ones included.", func(st *holders.ModelStatus) float64 { return float64(st.Entries) }),
	fleetGauge("holder_sets", "Different sets of holders that have a block.", func(st *holders.ModelStatus) float64 { return float64(st.Sets) }),
	fleetGauge("bytes", "Memory that this takes.", func(st *holders.ModelStatus) float64 { return float64(st.Bytes) }),
	fleetGauge("max_bytes", "Bound on hitline_fleet_bytes.", func(st *holders.ModelStatus) float64 { return float64(st.MaxBytes) }),
}

// FleetCollector collects the metrics of the models of a holders.Service.
type FleetCollector struct{ models func() []holders.ModelStatus }

// NewFleetCollector returns the collector of the Models of a holders.Service.
func NewFleetCollector(models func() []holders.ModelStatus) *FleetCollector {
	return &FleetCollector{models}
}

// Describe implements prometheus.Collector.
func (c *FleetCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range fleetMetrics {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *FleetCollector) Collect(out chan<- prometheus.Metric) {
	for _, st := range c.models() {
		for _, m := range fleetMetrics {
			out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, m.value(&st), st.Name, st.Tenant)
		}
	}
}
