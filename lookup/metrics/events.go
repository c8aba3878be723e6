package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
)

// eventsMetric is one field of an events.Status as a metric.
type eventsMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(st *events.Status) float64
}

// sourceLabel has the name of the source.
const sourceLabel = "source"

func eventsGauge(name, help string, value func(st *events.Status) float64) eventsMetric {
	return eventsMetric{describe("router_source_"+name, help, sourceLabel), prometheus.GaugeValue, value}
}

func eventsCounter(name, help string, value func(st *events.Status) int64) eventsMetric {
	return eventsMetric{
		describe("router_source_"+name, help, sourceLabel), prometheus.CounterValue,
		func(st *events.Status) float64 { return float64(value(st)) },
	}
}

var eventsMetrics = []eventsMetric{
	eventsGauge("stale", "1 if the source may have missed events: its holder then counts for nothing.", func(st *events.Status) float64 { return boolValue(st.Stale) }),
	eventsGauge("complete", "1 if all that the engine has said since its start is known.", func(st *events.Status) float64 { return boolValue(st.Complete) }),
	eventsGauge("blocks", "Blocks that the engine holds, in all groups and media.", func(st *events.Status) float64 { return float64(st.Blocks) }),
	eventsGauge("last_timestamp_seconds", "When the last batch arrived, in seconds since 1970; 0 before the first.", func(st *events.Status) float64 {
		if st.LastEvent.IsZero() {
			return 0
		}
		return float64(st.LastEvent.UnixMilli()) / 1000
	}),
	eventsCounter("batches_total", "Batches of events that were applied.", func(st *events.Status) int64 { return st.Batches }),
	eventsCounter("stored_total", "Blocks that events have stored.", func(st *events.Status) int64 { return st.Stored }),
	eventsCounter("removed_total", "Blocks that events have removed.", func(st *events.Status) int64 { return st.Removed }),
	eventsCounter("cleared_total", "Events that removed all blocks.", func(st *events.Status) int64 { return st.Cleared }),
	eventsCounter("hints_total", "Blocks of stores that no event removes; they are not held.", func(st *events.Status) int64 { return st.Unheld }),
	eventsCounter("unknown_total", "Events of a type that is not known.", func(st *events.Status) int64 { return st.Unknown }),
	eventsCounter("gaps_total", "Times that sequence numbers were missing.", func(st *events.Status) int64 { return st.Gaps }),
	eventsCounter("holes_total", "Gaps that could not be filled, and batches that could not be read: all blocks were removed.", func(st *events.Status) int64 { return st.Lost }),
	eventsCounter("replays_total", "Replays that the publisher was asked for.", func(st *events.Status) int64 { return st.Replays }),
	eventsCounter("restarts_total", "Times that the publisher was found to be another one.", func(st *events.Status) int64 { return st.Restarts }),
	eventsCounter("connects_total", "Connections to the publisher.", func(st *events.Status) int64 { return st.Connects }),
	eventsCounter("errors_total", "Connections that failed or ended, and batches that could not be applied.", func(st *events.Status) int64 { return st.Errors }),
}

// Metrics with further labels.
var (
	eventsState  = describe("router_source_state", "1 for the state that the source is in.", sourceLabel, "state")
	routerSource = describe("router_source_info", "1 for each source that fills a holder; the labels tell what it is.", sourceLabel, modelLabel, tenantLabel, "instance_name", "rank", "endpoint")
)

// eventsStates are the states of a source.
var eventsStates = []events.State{events.StateConnecting, events.StateReplaying, events.StateLive}

// EventsCollector collects the metrics of sources of KV events.
type EventsCollector struct {
	sources func() []router.SourceStatus
}

// NewEventsCollector returns the collector of the Status of a router.Service.
func NewEventsCollector(sources func() []router.SourceStatus) *EventsCollector {
	return &EventsCollector{sources}
}

// Describe implements prometheus.Collector.
func (c *EventsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range eventsMetrics {
		out <- m.desc
	}
	out <- eventsState
	out <- routerSource
}

// Collect implements prometheus.Collector.
func (c *EventsCollector) Collect(out chan<- prometheus.Metric) {
	for _, st := range c.sources() {
		for _, m := range eventsMetrics {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&st.Status), st.Name)
		}
		for _, state := range eventsStates {
			out <- prometheus.MustNewConstMetric(eventsState, prometheus.GaugeValue, boolValue(state == st.State), st.Name, string(state))
		}
		out <- prometheus.MustNewConstMetric(routerSource, prometheus.GaugeValue, 1, st.Name, st.Model, st.Tenant, st.Engine, strconv.Itoa(st.Rank), st.Endpoint)
	}
}
