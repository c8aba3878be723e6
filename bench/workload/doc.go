// Package workload makes what a measurement asks for and knows what must be answered:
//
//   - [Chains]: chains of random hashes that are stored, then looked up in rotation.
//   - [Trace]: the requests of a recorded trace.
//
// All that is drawn depends on a [Seed] alone: the same seed makes the same requests.
// No promise: it is internal to this module, and its API may change in any release.
package workload
