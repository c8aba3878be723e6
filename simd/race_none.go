//go:build !race

package simd

// raceRead does nothing without the race detector.
func raceRead[T any]([]T) {}

// raceReadStrided does nothing without the race detector.
func raceReadStrided(b []byte, stride, hashLen, n int) {}

// raceMatchTags does nothing without the race detector.
func raceMatchTags(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {}
