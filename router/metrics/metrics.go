package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
)

// What a metric is about.
type (
	model  = router.ModelStatus
	source = router.SourceStatus
)

// metric is one figure of a model or of a source. Those of a source have no label but its name: source_info has the others.
type metric[T any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(st *T) float64
}

func (m *metric[T]) send(out chan<- prometheus.Metric, st *T, labels ...string) {
	out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(st), labels...)
}

// describe returns the description of the metric hitline_router_name.
func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("hitline_router_"+name, help, labels, nil)
}

func ofModel(name, help string, value func(st *model) float64) metric[model] {
	return metric[model]{describe(name, help, "model", "tenant"), prometheus.GaugeValue, value}
}

func sourceGauge(name, help string, value func(st *source) float64) metric[source] {
	return metric[source]{describe("source_"+name, help, "source"), prometheus.GaugeValue, value}
}

func sourceCounter(name, help string, value func(st *source) int64) metric[source] {
	m := sourceGauge(name, help, func(st *source) float64 { return float64(value(st)) })
	m.kind = prometheus.CounterValue
	return m
}

var modelMetrics = []metric[model]{
	ofModel("holders", "Ranks of engines that are known.", func(st *model) float64 { return float64(len(st.Holders)) }),
	ofModel("stale_holders", "Holders that count for nothing but what is predicted: events may be missing, or they have no source.",
		func(st *model) float64 { return float64(st.NumStale()) }),
	ofModel("hashes_differ", "1 if live sources hash otherwise than the model's hash says, and none is known to hash so.",
		func(st *model) float64 { return boolValue(st.HashesDiffer) }),
	ofModel("blocks", "Different block hashes that holders have.", func(st *model) float64 { return float64(st.Blocks) }),
	ofModel("entries", "Blocks of each holder and tier, predicted ones included.", func(st *model) float64 { return float64(st.Entries) }),
	ofModel("sets", "Different sets of holders that have a block.", func(st *model) float64 { return float64(st.Sets) }),
	ofModel("bytes", "Memory for what the holders have.", func(st *model) float64 { return float64(st.Bytes) }),
	ofModel("max_bytes", "Bound on hitline_router_bytes.", func(st *model) float64 { return float64(st.MaxBytes) }),
}

var sourceMetrics = []metric[source]{
	sourceGauge("stale", "1 if the source may have missed events: its holder then counts for nothing but what is predicted.",
		func(st *source) float64 { return boolValue(st.Stale) }),
	sourceGauge("complete", "1 if all that the engine has said since its start is known.",
		func(st *source) float64 { return boolValue(st.Complete) }),
	sourceGauge("blocks", "Blocks that the engine holds, in all groups and tiers, predicted ones left out.",
		func(st *source) float64 { return float64(st.Blocks) }),
	sourceGauge("last_timestamp_seconds", "When the last batch arrived, in seconds since 1970; 0 before the first.", func(st *source) float64 {
		if st.LastEvent.IsZero() {
			return 0
		}
		return float64(st.LastEvent.UnixMilli()) / 1000
	}),
	sourceCounter("batches_total", "Batches of events that were applied.", func(st *source) int64 { return st.Batches }),
	sourceCounter("stored_total", "Blocks that events have stored.", func(st *source) int64 { return st.Stored }),
	sourceCounter("removed_total", "Blocks that events have removed.", func(st *source) int64 { return st.Removed }),
	sourceCounter("cleared_total", "Events that removed all blocks.", func(st *source) int64 { return st.Cleared }),
	sourceCounter("unheld_total", "Blocks of stores that no event removes; they are not held.", func(st *source) int64 { return st.Unheld }),
	sourceCounter("dropped_total", "Blocks that were dropped because max_bytes was used and the engine had the most.",
		func(st *source) int64 { return st.Dropped }),
	sourceCounter("unknown_total", "Events of a type that is not known.", func(st *source) int64 { return st.Unknown }),
	sourceCounter("gaps_total", "Times that sequence numbers were missing.", func(st *source) int64 { return st.Gaps }),
	sourceCounter("lost_total", "Times that batches were lost or could not be read: all blocks were removed.",
		func(st *source) int64 { return st.Lost }),
	sourceCounter("replays_total", "Replays that the publisher was asked for: at connections and for gaps.", func(st *source) int64 { return st.Replays }),
	sourceCounter("checks_total", "Times that a silent publisher was asked whether it lives and a batch was missed.",
		func(st *source) int64 { return st.Checks }),
	sourceCounter("restarts_total", "Times that the publisher was found to be another one.", func(st *source) int64 { return st.Restarts }),
	sourceCounter("connects_total", "Connections to the publisher.", func(st *source) int64 { return st.Connects }),
	sourceCounter("errors_total", "Connections that failed or ended, and batches that could not be applied.",
		func(st *source) int64 { return st.Errors }),
}

var (
	sourceState  = describe("source_state", "1 for the state that the source is in.", "source", "state")
	sourceHashes = describe("source_hashes", "1 for what is known of the source's hashes: whether they are those that the model's hash makes of tokens.", "source", "hashes")
	sourceInfo   = describe("source_info", "1 for each source; the labels tell what it is.", "source", "model", "tenant", "engine", "rank", "endpoint")
	sourceStates = []events.State{events.StateConnecting, events.StateReplaying, events.StateLive}
	agreements   = []router.Agreement{router.HashesUnchecked, router.HashesAgree, router.HashesDiffer}
)

// Collector collects the metrics of a router.Service: each scrape reads its state. Safe for concurrent use.
type Collector struct {
	Models  func() []router.ModelStatus  // of the service
	Sources func() []router.SourceStatus // its Status
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range modelMetrics {
		out <- m.desc
	}
	for _, m := range sourceMetrics {
		out <- m.desc
	}
	out <- sourceState
	out <- sourceHashes
	out <- sourceInfo
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, st := range c.Models() {
		for _, m := range modelMetrics {
			m.send(out, &st, st.Name, st.Tenant)
		}
	}
	for _, st := range c.Sources() {
		for _, m := range sourceMetrics {
			m.send(out, &st, st.Name)
		}
		for _, state := range sourceStates {
			out <- prometheus.MustNewConstMetric(sourceState, prometheus.GaugeValue, boolValue(state == st.State), st.Name, string(state))
		}
		for _, hashes := range agreements {
			out <- prometheus.MustNewConstMetric(sourceHashes, prometheus.GaugeValue, boolValue(hashes == st.Hashes), st.Name, string(hashes))
		}
		out <- prometheus.MustNewConstMetric(sourceInfo, prometheus.GaugeValue, 1,
			st.Name, st.Model, st.Tenant, st.Engine, strconv.Itoa(st.Rank), st.Endpoint)
	}
}

// boolValue returns 1 for true and 0 for false.
func boolValue(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
