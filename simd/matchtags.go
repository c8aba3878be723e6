package simd

// BucketTags is the number of tags in a bucket.
const BucketTags = 10

// MatchTags compares each tag of a batch with the tags of its bucket. For each i in tags it
// sets bit k of masks[i] if buckets[i][k] == tags[i], and clears all other bits. It panics
// if there are fewer masks or buckets than tags.
//
// A hash table is probed with it for many keys at once. Each probe misses the cache once. In
// a batch the processor fetches many cache lines at a time, without a prefetch by the
// caller. A good batch is 64 keys: a larger one makes no more misses overlap.
func MatchTags(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {
	if len(tags) == 0 {
		return
	}
	masks, buckets = masks[:len(tags)], buckets[:len(tags)]
	matchTags(masks, buckets, tags)
}

// matchTagsGeneric is MatchTags with as many masks and buckets as tags.
func matchTagsGeneric(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {
	masks, buckets = masks[:len(tags)], buckets[:len(tags)]

	// Load every bucket first. The comparison below has enough instructions per bucket that
	// the processor runs few buckets ahead. This loop has so few that it fetches all of them
	// together. What it stores is overwritten.
	for i, b := range buckets {
		masks[i] = b[0]
	}
	for i, tag := range tags {
		b := buckets[i]
		all := uint64(tag) * 0x0001_0001_0001_0001
		x := uint64(b[0]) | uint64(b[1])<<16 | uint64(b[2])<<32 | uint64(b[3])<<48
		y := uint64(b[4]) | uint64(b[5])<<16 | uint64(b[6])<<32 | uint64(b[7])<<48
		z := uint64(b[8]) | uint64(b[9])<<16
		masks[i] = zeros16(x^all) | zeros16(y^all)<<4 | zeros16(z^all)&3<<8
	}
}

// zeros16 sets bit k if the k-th 16 bits of x are 0, for k from 0 to 3.
func zeros16(x uint64) uint16 {
	const low = 0x7FFF_7FFF_7FFF_7FFF
	// Adding 15 ones to the lower 15 bits sets the 16th bit unless they are all 0. No carry
	// reaches the next 16 bits, so the result is exact.
	x = ^((x&low + low) | x | low)
	// The bits 15, 31, 47 and 63 are left: the product moves them to the top in order.
	return uint16((x >> 15) * (1<<60 | 1<<45 | 1<<30 | 1<<15) >> 60)
}
