// Package metrics exports the state of a router.Service to Prometheus. No promise: it is internal to this module, and
// its API may change in any release. What is promised are the names of the metrics: see docs/monitoring.md.
package metrics
