// Package lookuptest has what the tests of the service, the server and the client share:
// chains of hashes, a scripted store of keys, a peer that speaks bytes, a log that is
// read. It imports none of the three. For tests only.
package lookuptest
