package index

import (
	"runtime"
	"testing"
)

// What the tests of package index_test need from inside.

// RaceEnabled says that the race detector is on.
const RaceEnabled = raceEnabled

// SetHash replaces the hash of an index that is still empty.
func SetHash(x *Index, hash func(key []byte) uint64) { x.badHash = hash }

// UseDigests makes an index that is still empty compare groups by their digests, also where these are slow, or key by key.
func UseDigests(x *Index, digests bool) { x.digests = digests }

// CheckBooks fails unless what an index keeps about its entries agrees with them.
func CheckBooks(t testing.TB, x *Index) {
	t.Helper()
	checkBooks(t, x)
}

// SkipSlow skips a test that calls an index from one goroutine and computes for long: there is nothing to race
// for, and an emulated processor takes minutes.
func SkipSlow(t *testing.T) {
	t.Helper()
	if raceEnabled || testing.Short() && runtime.GOARCH == "arm64" {
		t.Skip("one goroutine that computes for long: not under the race detector, nor in the short form on arm64")
	}
}
