// Package storetest starts real stores for tests: Redis and Valkey as a single server, with
// TLS and as a cluster, and a Mooncake master with a node. It also installs the Python of the
// ZeroMQ tests.
//
// Every store listens on loopback only and ends with its test or with the test process.
//
// A test that lacks a program is skipped. With CI=true it fails instead: CI installs
// everything. Packages from PyPI are installed once, in the user's cache.
package storetest
