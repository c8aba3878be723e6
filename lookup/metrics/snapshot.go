package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hitline/hitline/lookup/snapshot"
)

// snapshotMetric is one field of a snapshot.Status as a metric.
type snapshotMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(st *snapshot.Status) float64
}

var snapshotMetrics = []snapshotMetric{
	{describe("snapshot_last_timestamp_seconds", "When the last snapshot was begun, in seconds since 1970; 0 before the first."), prometheus.GaugeValue, func(st *snapshot.Status) float64 {
		if st.Written.IsZero() {
			return 0
		}
		return float64(st.Written.UnixMilli()) / 1000
	}},
	{describe("snapshot_last_duration_seconds", "How long the last snapshot took."), prometheus.GaugeValue, func(st *snapshot.Status) float64 { return st.Seconds }},
	{describe("snapshot_last_bytes", "Bytes of the last snapshot."), prometheus.GaugeValue, func(st *snapshot.Status) float64 { return float64(st.Bytes) }},
	{describe("snapshot_last_entries", "Entries in the last snapshot."), prometheus.GaugeValue, func(st *snapshot.Status) float64 { return float64(st.Entries) }},
	{describe("snapshots_failed_total", "Snapshots that could not be written."), prometheus.CounterValue, func(st *snapshot.Status) float64 { return float64(st.Failed) }},
	{describe("snapshot_loaded_entries", "Entries that were loaded from the snapshot at the start."), prometheus.GaugeValue, func(st *snapshot.Status) float64 { return float64(st.LoadedEntries) }},
}

// SnapshotCollector collects the metrics of the snapshots of a server.
type SnapshotCollector struct{ status func() *snapshot.Status }

// NewSnapshotCollector returns the collector of a Saver's Status.
func NewSnapshotCollector(status func() *snapshot.Status) *SnapshotCollector {
	return &SnapshotCollector{status}
}

// Describe implements prometheus.Collector.
func (c *SnapshotCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range snapshotMetrics {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *SnapshotCollector) Collect(out chan<- prometheus.Metric) {
	st := c.status()
	for _, m := range snapshotMetrics {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(st))
	}
}
