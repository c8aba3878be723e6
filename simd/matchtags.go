package simd

// BucketTags is the number of tags in a bucket.
const BucketTags = 10

// MatchTags compares each of a batch of tags with those of its bucket: it sets bit k of
// masks[i] if buckets[i][k] == tags[i], and clears all others, for each i in tags. It
// panics if there are fewer masks or buckets than tags.
//
// It is how a hash table is probed for many keys at once. Buckets lie anywhere in memory,
// so a probe waits for one cache line; in a batch (64 is a good size: more of them do not
// wait together) the processor fetches many lines at a time, which needs no prefetch before
// the call.
func MatchTags(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {
	if len(tags) == 0 {
		return
	}
	masks, buckets = masks[:len(tags)], buckets[:len(tags)]
	raceMatchTags(masks, buckets, tags)
	matchTags(masks, buckets, tags)
}

// matchTagsGeneric is MatchTags with as many masks and buckets as tags.
func matchTagsGeneric(masks []uint16, buckets []*[BucketTags]uint16, tags []uint16) {
	masks, buckets = masks[:len(tags)], buckets[:len(tags)]

	// Touch every bucket first. The comparison below is so many instructions that the
	// processor sees few buckets ahead; this loop is so few that it fetches all of them
	// together, and what it stores does not matter.
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
	// The sum of the lower 15 bits and all ones sets the 16th bit unless they are 0; no sum
	// reaches its neighbour, so the answer is exact.
	x = ^((x&low + low) | x | low)
	// One bit each, at 15, 31, 47 and 63: the product brings them to the top in order.
	return uint16((x >> 15) * (1<<60 | 1<<45 | 1<<30 | 1<<15) >> 60)
}
