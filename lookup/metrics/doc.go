// Package metrics shows a lookup server or service to Prometheus. It is apart from
// package lookup so that programs which embed that one need no Prometheus.
//
//	registry.MustRegister(metrics.NewServer(server))
//
// A Collector keeps no numbers of its own: each scrape reads the counters that the
// server keeps anyway. Names, units and meanings are those in docs/operations.md.
// Collectors are safe for concurrent use and hold nothing that must be given back.
package metrics
