//go:build !race

package simd

// raceRead tells the race detector that b is read: nothing to do without one.
func raceRead[T any]([]T) {}

// raceReadStrided tells the race detector that hashes are read: nothing to do without one.
func raceReadStrided(b []byte, step, hashLen, n int) {}

// raceMatchTags tells the race detector what MatchTags uses: nothing to do without one.
func raceMatchTags(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {}
