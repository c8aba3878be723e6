// Package process chooses the cores of a measurement's client and servers, starts the
// servers on theirs, and ends them with the bench, however that ends. On systems other
// than Linux nothing is pinned.
package process
