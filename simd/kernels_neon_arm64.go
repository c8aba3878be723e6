//go:build !purego

package simd

// equalBlocksNEON returns the number of leading bytes that are equal in a[:n] and b[:n],
// rounded down to whole blocks of 64. n is a multiple of 64 and not 0.
//
//go:noescape
func equalBlocksNEON(a, b *byte, n int) int

// runBlocksNEON returns the number of leading bytes of p[:n] that repeat its first two bytes,
// rounded down to whole blocks of 64. n is a multiple of 64 and not 0.
//
//go:noescape
func runBlocksNEON(p *byte, n int) int

// equalPairs32NEON returns how many leading pairs of hashes of 32 bytes are equal, where
// hash k of a is at a[k*aStride:] and hash k of b at b[k*bStride:]. There is at least one pair.
//
//go:noescape
func equalPairs32NEON(a *byte, aStride int, b *byte, bStride, pairs int) int

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
