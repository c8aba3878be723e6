// Package lookuptest has what the tests of the service, the server and the client share:
// chains of hashes, a scripted backend, a peer of raw bytes, and a log in memory. It imports
// none of the three. It is for tests only.
package lookuptest
