package coordinator

import (
	"bytes"
	"hash/maphash"
	"sync"

	"github.com/hitline/hitline/netproto"
)

// repeats is a hash table of positions, reused between lookups. It is fast if all hashes
// differ, as in chains: one pass, and no hash is copied.
type repeats struct {
	// table is open-addressed. A slot holds the upper 32 bits of a key hash's own
	// hash, and its position + 1; 0 is free. At least half of the slots are free.
	table []uint64
}

var (
	repeatsPool = sync.Pool{New: func() any { return new(repeats) }}
	repeatsSeed = maphash.MakeSeed() // random, so that no client can choose colliding hashes
)

// firstOccurrences returns, for each of the first n positions of a key stride, the first
// position with an equal hash. It returns nil if all hashes differ.
func firstOccurrences(hashes netproto.Hashes, stride, n int) []uint32 {
	r := repeatsPool.Get().(*repeats)
	defer repeatsPool.Put(r)
	size := 16
	for size < 2*n {
		size *= 2
	}
	if cap(r.table) < size {
		r.table = make([]uint64, size)
	}
	table := r.table[:size]
	clear(table)
	var first []uint32
	for i := range n {
		hash := hashes.At(netproto.KeyIndex(i, stride))
		hashed := maphash.Bytes(repeatsSeed, hash)
		tag, at := hashed>>32<<32, int(hashed)&(size-1)
		for ; table[at] != 0; at = (at + 1) & (size - 1) {
			if table[at]>>32<<32 != tag {
				continue
			}
			j := int(uint32(table[at])) - 1
			if !bytes.Equal(hash, hashes.At(netproto.KeyIndex(j, stride))) {
				continue
			}
			if first == nil {
				first = make([]uint32, n)
				for k := range first {
					first[k] = uint32(k)
				}
			}
			first[i] = uint32(j)
			break
		}
		if table[at] == 0 {
			table[at] = tag | uint64(i+1)
		}
	}
	return first
}
