// Package metrics exports the counters of a lookup server to Prometheus. It is separate
// from package lookup, so that programs that embed a service need not link Prometheus. No promise:
// it is internal to this module, and its API may change in any release. What is promised are the
// names of the metrics.
//
//	registry.MustRegister(metrics.NewServerCollector(srv))
//
// A Collector has no counters of its own: each scrape reads those of the server. Names,
// units and meanings are in docs/monitoring.md; they are an interface and do not change.
// Collectors are safe for concurrent use and need not be closed.
package metrics
