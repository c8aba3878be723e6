package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hitline/hitline/events"
	"github.com/hitline/hitline/lookup/feed"
)

// eventsMetric is one field of a feed.SourceStatus as a metric.
type eventsMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(st *feed.SourceStatus) float64
}

// sourceLabel has the name of the source.
const sourceLabel = "source"

func eventsGauge(name, help string, value func(st *feed.SourceStatus) float64) eventsMetric {
	return eventsMetric{describe("events_"+name, help, sourceLabel), prometheus.GaugeValue, value}
}

func eventsCounter(name, help string, value func(st *feed.SourceStatus) int64) eventsMetric {
	return eventsMetric{
		describe("events_"+name, help, sourceLabel), prometheus.CounterValue,
		func(st *feed.SourceStatus) float64 { return float64(value(st)) },
	}
}

var eventsMetrics = []eventsMetric{
	eventsGauge("stale", "1 if the source may have missed events: its pool then answers 0.", func(st *feed.SourceStatus) float64 { return boolValue(st.Stale) }),
	eventsGauge("complete", "1 if all that the engine has said since its start is known.", func(st *feed.SourceStatus) float64 { return boolValue(st.Complete) }),
	eventsGauge("blocks", "Blocks that the engine holds, in all groups and media.", func(st *feed.SourceStatus) float64 { return float64(st.Blocks) }),
	eventsGauge("last_timestamp_seconds", "When the last batch arrived, in seconds since 1970; 0 before the first.", func(st *feed.SourceStatus) float64 {
		if st.LastEvent.IsZero() {
			return 0
		}
		return float64(st.LastEvent.UnixMilli()) / 1000
	}),
	eventsCounter("batches_total", "Batches of events that were applied.", func(st *feed.SourceStatus) int64 { return st.Batches }),
	eventsCounter("stored_total", "Blocks that events have stored.", func(st *feed.SourceStatus) int64 { return st.Stored }),
	eventsCounter("removed_total", "Blocks that events have removed.", func(st *feed.SourceStatus) int64 { return st.Removed }),
	eventsCounter("cleared_total", "Events that removed all blocks.", func(st *feed.SourceStatus) int64 { return st.Cleared }),
	eventsCounter("hints_total", "Blocks of stores that no event removes; they are not held.", func(st *feed.SourceStatus) int64 { return st.Hints }),
	eventsCounter("unknown_total", "Events of a type that is not known.", func(st *feed.SourceStatus) int64 { return st.Unknown }),
	eventsCounter("gaps_total", "Times that sequence numbers were missing.", func(st *feed.SourceStatus) int64 { return st.Gaps }),
	eventsCounter("holes_total", "Gaps that could not be filled, and batches that could not be read: all blocks were removed.", func(st *feed.SourceStatus) int64 { return st.Holes }),
	eventsCounter("replays_total", "Replays that the publisher was asked for.", func(st *feed.SourceStatus) int64 { return st.Replays }),
	eventsCounter("restarts_total", "Times that the publisher was found to be another one.", func(st *feed.SourceStatus) int64 { return st.Restarts }),
	eventsCounter("connects_total", "Connections to the publisher.", func(st *feed.SourceStatus) int64 { return st.Connects }),
	eventsCounter("errors_total", "Connections that failed or ended, and batches that could not be applied.", func(st *feed.SourceStatus) int64 { return st.Errors }),
}

// Metrics with further labels.
var (
	eventsInfo  = describe("events_source_info", "1 for each source; the labels tell what it is.", sourceLabel, poolLabel, "endpoint")
	eventsState = describe("events_state", "1 for the state that the source is in.", sourceLabel, "state")
)

// eventsStates are the states of a source.
var eventsStates = []events.State{events.StateConnecting, events.StateReplaying, events.StateLive}

// EventsCollector collects the metrics of sources of KV events.
type EventsCollector struct {
	sources func() []feed.SourceStatus
}

// NewEventsCollector returns the collector of the Status of feed.Sources.
func NewEventsCollector(sources func() []feed.SourceStatus) *EventsCollector {
	return &EventsCollector{sources}
}

// Describe implements prometheus.Collector.
func (c *EventsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range eventsMetrics {
		out <- m.desc
	}
	out <- eventsInfo
	out <- eventsState
}

// Collect implements prometheus.Collector.
func (c *EventsCollector) Collect(out chan<- prometheus.Metric) {
	for _, st := range c.sources() {
		for _, m := range eventsMetrics {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&st), st.Name)
		}
		out <- prometheus.MustNewConstMetric(eventsInfo, prometheus.GaugeValue, 1, st.Name, st.Pool, st.Endpoint)
		for _, state := range eventsStates {
			out <- prometheus.MustNewConstMetric(eventsState, prometheus.GaugeValue, boolValue(state == st.State), st.Name, string(state))
		}
	}
}
