// Package process starts the servers and programs of a measurement, each on its cores, and ends
// them with the bench, however that ends. On systems other than Linux nothing is pinned to cores.
// No promise: it is internal to this module, and its API may change in any release.
package process
