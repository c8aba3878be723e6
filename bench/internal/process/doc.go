// Package process starts the servers that a bench measures, each on the core that
// it is given, and ends them with the bench, however that ends. On systems other
// than Linux nothing is pinned.
package process
