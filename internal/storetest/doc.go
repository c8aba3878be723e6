// Package storetest starts real stores for tests: Redis and Valkey, alone, with TLS
// and as a cluster, and a Mooncake store with its master and a node of its own.
//
// What is missing on a machine is a test skipped, or failed where CI is "true": there
// everything is there or can be installed. What comes from PyPI is installed once, in
// the user's cache.
package storetest
