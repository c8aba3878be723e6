package netproto

import "github.com/zeebo/xxh3"

// Digest returns the digest of block hashes, joined: the 64-bit XXH3 of their
// bytes, with seed 0. It tells lists of hashes apart that somebody has got wrong,
// not such as somebody has made to agree; those would agree for one pair in 2^64 by
// chance.
func Digest(hashes []byte) uint64 { return xxh3.Hash(hashes) }
