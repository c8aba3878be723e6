//go:build !purego && !race

package simd

// equalBlocksNEON returns the number of leading bytes that are equal in a[:n] and b[:n],
// rounded down to whole blocks of 64. n is a multiple of 64 and not 0.
//
//go:noescape
func equalBlocksNEON(a, b *byte, n int) int

// matchTagsNEON sets bit k of masks[i] if buckets[i][k] is tags[i] and clears all others,
// for i from 0 to n-1. n is not 0.
//
//go:noescape
func matchTagsNEON(masks *uint16, buckets **[10]uint16, tags *uint16, n int)

// prefetchNEON starts to fetch the cache lines of lines[0] to lines[n-1] into the
// first-level cache. n is not 0.
//
//go:noescape
func prefetchNEON(lines **byte, n int)

// sumProductsNEON is sumProductsGeneric. n is a multiple of 64 from 64 to 4096, and the secret
// is at least as long, rounded up to a multiple of 128. It needs PMULL.
//
//go:noescape
func sumProductsNEON(sum *[4]uint64, secret *uint64, message *byte, n int)
