package index

import (
	"encoding/binary"
	"math/bits"

	"github.com/hitline/hitline/simd"
)

// batchKeys is how many keys are looked for or stored at a time: enough for their
// cache misses to overlap, and few enough that what is changed for one batch of
// stores holds up lookups for some microseconds only.
const batchKeys = 64

// batch is keys looked for together.
type batch struct {
	hash [batchKeys]uint64
	slot [batchKeys]slot // noSlot: absent
	sum  uint32          // of what was touched, so that it is not optimised away
}

// find returns the slot of a key with hash h.
func (x *Index) find(h uint64, key []byte) (found slot) {
	found = noSlot
	x.table.cells(h, func(s slot) bool {
		if x.holds(s, key) {
			found = s
			return true
		}
		return false
	})
	return found
}

// holds tells whether a slot's record is the key. Lengths are compared as well.
func (x *Index) holds(s slot, key []byte) bool {
	seg, i := x.at(s)
	return string(seg.key(i)) == string(key)
}

// findBatch looks for n keys of hashLen bytes, the length of the index's, that lie step
// bytes apart. It goes in stages, hashes, buckets, records, so that the cache misses of
// all keys overlap.
func (x *Index) findBatch(b *batch, keys []byte, step, hashLen, n int) {
	x.hashBatch(b, keys, step, hashLen, n)
	more := x.candidates(b, n)
	for i := range n {
		s := b.slot[i]
		key := keys[i*step:][:hashLen]
		if s != noSlot {
			seg, j := x.at(s)
			if hashLen == 32 { // spares the usual hash a call
				if equal32((*[32]byte)(seg.keys[j*32:]), (*[32]byte)(key)) {
					continue
				}
			} else if string(seg.key(j)) == string(key) {
				continue
			}
		}
		if b.slot[i] = noSlot; more>>i&1 == 1 {
			b.slot[i] = x.find(b.hash[i], key)
		}
	}
}

func (x *Index) hashBatch(b *batch, keys []byte, step, hashLen, n int) {
	if x.badHash == nil && hashLen == 32 {
		for i := range n {
			b.hash[i] = x.hasher.sum32((*[32]byte)(keys[i*step:]))
		}
		return
	}
	for i := range n {
		key := keys[i*step:]
		b.hash[i] = x.hash(key[:hashLen:hashLen])
	}
}

func equal32(a, b *[32]byte) bool {
	diff := binary.LittleEndian.Uint64(a[0:]) ^ binary.LittleEndian.Uint64(b[0:])
	diff |= binary.LittleEndian.Uint64(a[8:]) ^ binary.LittleEndian.Uint64(b[8:])
	diff |= binary.LittleEndian.Uint64(a[16:]) ^ binary.LittleEndian.Uint64(b[16:])
	diff |= binary.LittleEndian.Uint64(a[24:]) ^ binary.LittleEndian.Uint64(b[24:])
	return diff == 0
}

// candidates finds for each hash the first slot that its tag points to. Bit i of
// more is set when there may be others.
func (x *Index) candidates(b *batch, n int) (more uint64) {
	var (
		buckets [batchKeys]*bucket
		tags    [batchKeys]*[bucketCells]uint16
		want    [batchKeys]uint16
		marks   [batchKeys]uint16
	)
	for i, h := range b.hash[:n] {
		bk := &x.table.page(h).buckets[home(h)]
		buckets[i], tags[i], want[i] = bk, &bk.tags, uint16(h)
	}
	simd.MatchTags(marks[:n], tags[:n], want[:n])
	for i, bk := range buckets[:n] {
		m := marks[i]
		if bk.passed != 0 || m&(m-1) != 0 {
			more |= 1 << i
		}
		b.slot[i] = noSlot
		if m != 0 {
			b.slot[i] = slot(bk.slots[bits.TrailingZeros16(m)] - 1) // an empty cell gives noSlot
		}
	}
	sum := uint32(0)
	for _, s := range b.slot[:n] {
		if s != noSlot { // fetches the records, and none waits for another
			seg, j := x.at(s)
			sum += uint32(seg.keys[j*seg.hashLen]) + uint32(seg.classOf(j))
		}
	}
	b.sum = sum
	if x.table.overflow != nil {
		return ^uint64(0)
	}
	return more
}
