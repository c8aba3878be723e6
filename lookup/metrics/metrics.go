package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
)

// Collector collects the metrics of a server and its pools.
type Collector struct {
	server  *server.Server
	metrics []metric // of a pool
	remote  bool     // the pools are over a backend
}

// NewServerCollector returns a collector of the metrics of a server and its pools.
func NewServerCollector(srv *server.Server) *Collector {
	c := &Collector{server: srv, metrics: append([]metric(nil), serviceMetrics...), remote: srv.Stat().BackendState != ""}
	if c.remote {
		c.metrics = append(c.metrics, backendMetrics...)
	} else {
		c.metrics = append(c.metrics, indexMetrics...)
	}
	return c
}

// metric is one field of api.Stat as a metric.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(st *api.Stat) int64
}

// describe returns the description of the metric hitline_name.
func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("hitline_"+name, help, labels, nil)
}

func counter(name, help string, value func(st *api.Stat) int64, labels ...string) metric {
	return metric{describe(name, help, labels...), prometheus.CounterValue, value}
}

func gauge(name, help string, value func(st *api.Stat) int64, labels ...string) metric {
	return metric{describe(name, help, labels...), prometheus.GaugeValue, value}
}

// poolLabel has the name of the pool. It is empty for the server's own, as if it were missing.
const poolLabel = "pool"

var serviceMetrics = []metric{
	counter("lookups_total", "Lookups answered with a hit, hits of 0 tokens included.", func(st *api.Stat) int64 { return st.Lookups }, poolLabel),
	counter("stored_total", "Keys that stores have added to a rank.", func(st *api.Stat) int64 { return st.Stored }, poolLabel),
	counter("evicted_total", "Entries removed, to free memory or on request.", func(st *api.Stat) int64 { return st.Evicted }, poolLabel),
}

var indexMetrics = []metric{
	gauge("index_entries", "Distinct hashes in the memory index.", func(st *api.Stat) int64 { return st.Entries }, poolLabel),
	gauge("index_max_entries", "Bound on hitline_index_entries; 0: none but that on bytes.", func(st *api.Stat) int64 { return st.MaxEntries }, poolLabel),
	gauge("index_bytes", "Memory that the index has allocated.", func(st *api.Stat) int64 { return st.Bytes }, poolLabel),
	gauge("index_max_bytes", "Bound on hitline_index_bytes.", func(st *api.Stat) int64 { return st.MaxBytes }, poolLabel),
	counter("stores_refused_total", "Stores and evicts refused: too many combinations of ranks hold blocks, or hashes of another length.", func(st *api.Stat) int64 { return st.StoresRefused }, poolLabel),
}

var backendMetrics = []metric{
	counter("backend_errors_total", "Calls of the backend that failed.", func(st *api.Stat) int64 { return st.BackendErrors }, poolLabel),
	counter("backend_timeouts_total", "Calls of the backend, or waits for one, past the deadline.", func(st *api.Stat) int64 { return st.BackendTimeouts }, poolLabel),
	counter("backend_rejected_total", "Requests that the backend was not asked for: breaker open, or too many keys.", func(st *api.Stat) int64 { return st.BackendRejected }, poolLabel),
	counter("backend_rounds_total", "Calls of the backend that lookups made.", func(st *api.Stat) int64 { return st.BackendRounds }, poolLabel),
	counter("backend_keys_total", "Keys that lookups asked the backend for.", func(st *api.Stat) int64 { return st.BackendKeys }, poolLabel),
	counter("renewed_keys_total", "Keys before the start of lookups that the backend was asked for to keep them.", func(st *api.Stat) int64 { return st.RenewedKeys }, poolLabel),
	counter("renewals_dropped_total", "Requests to keep such keys that were not done, or not to their end.", func(st *api.Stat) int64 { return st.RenewalsDropped }, poolLabel),
	counter("remembered_lookups_total", "Lookups answered without a call of the backend, from what calls before had found.", func(st *api.Stat) int64 { return st.RememberedLookups }, poolLabel),
}

var serverMetrics = []metric{
	gauge("start_time_seconds", "When the server was started, in seconds since 1970.", func(st *api.Stat) int64 { return st.StartTime.Unix() }),
	gauge("connections", "Open connections.", func(st *api.Stat) int64 { return st.Connections }),
	gauge("pools", "Pools that are served.", func(st *api.Stat) int64 { return st.Pools }),
	gauge("max_connections", "Bound on hitline_connections.", func(st *api.Stat) int64 { return st.MaxConnections }),
	counter("accept_errors_total", "Connections not accepted, or late, for want of descriptors or memory.", func(st *api.Stat) int64 { return st.AcceptErrors }),
	gauge("memory_bytes", "Memory of unread replies, unfinished requests, and calls of the backend.", func(st *api.Stat) int64 { return st.Memory }),
	gauge("max_memory_bytes", "Bound on hitline_memory_bytes.", func(st *api.Stat) int64 { return st.MaxMemory }),
	counter("memory_refused_total", "Requests refused and connections closed because of that bound.", func(st *api.Stat) int64 { return st.MemoryRefused }),
	counter("requests_refused_total", "Requests refused.", func(st *api.Stat) int64 { return st.RequestsRefused }),
	counter("requests_busy_total", "Requests refused because there was no room for them.", func(st *api.Stat) int64 { return st.Busy }),
	counter("replies_after_fin_total", "Requests answered after the peer's FIN. It may not have waited for the reply.", func(st *api.Stat) int64 { return st.AfterFIN }),
	counter("auth_failures_total", "Authentications that failed.", func(st *api.Stat) int64 { return st.AuthFailures }),
}

// Metrics that have labels, or are not fields of api.Stat.
var (
	buildInfo    = describe("build_info", "Always 1; the labels tell what runs.", "version", "kernel", "backend", "instance_id")
	poolInfo     = describe("pool_info", "1 for each pool; the labels tell what it is.", poolLabel, "vllm")
	backendState = describe("backend_state", "1 for the state that the circuit breaker is in.", "state")
	backendCalls = describe("backend_call_duration_seconds", "Calls of the backend, for all pools, until they returned or were abandoned at the deadline.", "call")
	ready        = describe("ready", "Whether /readyz says so.")
	requests     = describe("requests_total", "Requests answered, those refused included.", "request")
	notAllowed   = describe("requests_not_allowed_total", "Requests that the peer had no permission for.", "request")
	closed       = describe("connections_closed_total", "Connections that have ended, by reason.", "reason")
	durations    = describe("lookup_duration_seconds", "From the first byte of a lookup until its reply was handed to the kernel.")
	promptTokens = describe("prompt_tokens_total", "Tokens of prompts by the place where they went. A prompt counts once, some seconds after it was last asked about.", poolLabel, "place")
	prompts      = describe("prompts_total", "Prompts that are counted.", poolLabel)
	notCounted   = describe("prompt_lookups_not_counted_total", "Lookups that are not accounted for, as too many came at a time.", poolLabel)
	lookedKeys   = describe("looked_keys_total", "Keys that the store was asked for to see whether engines have saved what they lacked.", poolLabel)
	looksDropped = describe("looks_dropped_total", "Such questions that failed, or for which there was no room.", poolLabel)
	retention    = describe("pool_retention_seconds", "Up to which age half of the blocks that were in the pool are still found. Missing while that is not known.", poolLabel)
	evictedAge   = describe("pool_evicted_age_seconds", "How long ago half or more of the evicted blocks had last been asked for, when they were asked for again. Missing while that is not known.", poolLabel)
	poolHitShare = describe("pool_hit_share", "Share of what is asked for that an LRU pool of so many times the size would give. Missing while it or the size is not known.", poolLabel, "size")
	measured     = describe("pool_measured_hit_share", "Share of what was asked for that the pool gave, of the same requests.", poolLabel)
	hashes       = describe("lookup_hashes", "Block hashes of a lookup.")
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	out <- buildInfo
	for _, m := range c.metrics {
		out <- m.desc
	}
	out <- poolInfo
	if c.remote {
		out <- backendState
		out <- backendCalls
	}
	for _, m := range serverMetrics {
		out <- m.desc
	}
	for _, desc := range []*prometheus.Desc{ready, closed, requests, notAllowed, durations, hashes, promptTokens, prompts, notCounted, lookedKeys, looksDropped, retention, evictedAge, poolHitShare, measured} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	st := c.server.Stat()
	out <- prometheus.MustNewConstMetric(buildInfo, prometheus.GaugeValue, 1, st.Version, st.Kernel, st.Backend, st.Instance)
	for label, of := range c.server.PoolStats() {
		out <- prometheus.MustNewConstMetric(poolInfo, prometheus.GaugeValue, 1, label, of.VLLM)
		for _, m := range c.metrics {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.value(&of)), label)
		}
		if of.PoolTokens != nil {
			collectTokens(out, of.PoolTokens, label)
		}
	}
	if c.remote {
		for call, h := range c.server.BackendCalls() {
			out <- constHistogram(backendCalls, h, call)
		}
		for _, state := range lookup.BackendStates() {
			out <- prometheus.MustNewConstMetric(backendState, prometheus.GaugeValue, boolValue(state == st.BackendState), state)
		}
	}
	for _, m := range serverMetrics {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.value(&st)))
	}
	c.collectServer(out, &st)
}

// collectTokens collects where the tokens of a pool went.
func collectTokens(out chan<- prometheus.Metric, t *api.PoolTokens, pool string) {
	for place, n := range t.Tokens {
		out <- prometheus.MustNewConstMetric(promptTokens, prometheus.CounterValue, float64(n), pool, place)
	}
	out <- prometheus.MustNewConstMetric(prompts, prometheus.CounterValue, float64(t.Prompts), pool)
	out <- prometheus.MustNewConstMetric(notCounted, prometheus.CounterValue, float64(t.NotCounted), pool)
	out <- prometheus.MustNewConstMetric(lookedKeys, prometheus.CounterValue, float64(t.LookedKeys), pool)
	out <- prometheus.MustNewConstMetric(looksDropped, prometheus.CounterValue, float64(t.LooksDropped), pool)
	if t.RetentionSeconds > 0 {
		out <- prometheus.MustNewConstMetric(retention, prometheus.GaugeValue, t.RetentionSeconds, pool)
	}
	if t.EvictedAgeSeconds > 0 {
		out <- prometheus.MustNewConstMetric(evictedAge, prometheus.GaugeValue, t.EvictedAgeSeconds, pool)
	}
	for _, of := range t.Curve {
		if of.Size != "" {
			out <- prometheus.MustNewConstMetric(poolHitShare, prometheus.GaugeValue, of.HitShare, pool, of.Size)
		}
	}
	if t.MeasuredHitShare != nil {
		out <- prometheus.MustNewConstMetric(measured, prometheus.GaugeValue, *t.MeasuredHitShare, pool)
	}
}

// collectServer collects the metrics of the server that have labels, or are not fields of api.Stat. The maps of its
// counters lack what has not occurred. It is exported as 0, so that Prometheus sees the first one as an increase.
func (c *Collector) collectServer(out chan<- prometheus.Metric, st *api.Stat) {
	out <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, boolValue(c.server.Ready() == nil))
	for _, reason := range server.CloseReasons() {
		out <- prometheus.MustNewConstMetric(closed, prometheus.CounterValue, float64(st.Closed[reason]), reason)
	}
	for _, request := range server.RequestTags() {
		out <- prometheus.MustNewConstMetric(requests, prometheus.CounterValue, float64(st.Requests[request]), request)
	}
	for _, request := range server.RequestNames() {
		out <- prometheus.MustNewConstMetric(notAllowed, prometheus.CounterValue, float64(st.NotAllowed[request]), request)
	}
	out <- constHistogram(durations, c.server.LookupDurations())
	out <- constHistogram(hashes, c.server.LookupHashes())
}

// constHistogram converts a histogram. In Prometheus each bucket includes those below it.
func constHistogram(desc *prometheus.Desc, h api.Histogram, labels ...string) prometheus.Metric {
	upTo, total := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		total += h.Counts[i]
		upTo[bound] = total
	}
	total += h.Counts[len(h.Bounds)]
	return prometheus.MustNewConstHistogram(desc, total, h.Sum, upTo, labels...)
}

// boolValue returns 1 for true and 0 for false.
func boolValue(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
