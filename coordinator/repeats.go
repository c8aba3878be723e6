package coordinator

import (
	"bytes"
	"hash/maphash"
	"sync"

	"github.com/hitline/hitline/netproto"
)

// repeats finds equal hashes among positions. Chains have none, so that is the
// case it is fast for: one pass over a table of tags, no hash copied.
type repeats struct {
	// table is open-addressed: the upper half of a hash's hash, and one more than
	// its position; 0 is free. At least half of it is free.
	table []uint64
}

var (
	repeatsPool = sync.Pool{New: func() any { return new(repeats) }}
	repeatsSeed = maphash.MakeSeed() // nobody can choose hashes that collide
)

// firsts returns for each of the first n positions of a stride the first
// position whose hash is equal, or nil if all of them differ.
func firsts(hashes netproto.Hashes, stride, n int) []uint32 {
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
		sum := maphash.Bytes(repeatsSeed, hash)
		tag, at := sum>>32<<32, int(sum)&(size-1)
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
