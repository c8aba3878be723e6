package index

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/hitline/hitline/simd"
)

// batchKeys is how many keys are looked for or stored at a time: enough for their
// cache misses to overlap, and few enough that what is changed for one batch of
// stores holds up lookups for some microseconds only.
const batchKeys = 64

// partKeys is how many keys are looked for between two prefetches. While one part is
// compared, the records of the next and the buckets of the one behind it are fetched.
const partKeys = 16

// batch is keys looked for together. Of more than batchKeys it keeps the last.
type batch struct {
	hash   [batchKeys]uint64
	bucket [batchKeys]*bucket // where the hash belongs
	slot   [batchKeys]slot    // noSlot: absent
	more   uint64             // bit i: the slot is not the only candidate
	hashed int                // the first of the hashes are known before
}

// keyArray is n keys of hashLen bytes, which is the index's. Each begins step bytes behind the
// one before.
type keyArray struct {
	keys             []byte
	step, hashLen, n int
}

// part returns where the keys of a part begin and end, and the place of the first in a
// batch.
func (k *keyArray) part(g int) (from, to, at int) {
	return g * partKeys, min((g+1)*partKeys, k.n), g * partKeys % batchKeys
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

// holds reports whether a slot's record is the key. Lengths are compared as well.
func (x *Index) holds(s slot, key []byte) bool {
	seg, i := x.at(s)
	return string(seg.key(i)) == string(key)
}

// findBatch looks for all of at most batchKeys keys.
func (x *Index) findBatch(b *batch, k keyArray) {
	for g := 0; g*partKeys < k.n; g++ {
		x.findPart(b, &k, g)
	}
}

// findPart looks for a part of the keys, after those before it, and returns their slots.
// It works in stages, hashes, buckets, records, so that the cache misses of many keys overlap.
func (x *Index) findPart(b *batch, k *keyArray, g int) []slot {
	if g == 0 {
		x.hashPart(b, k, 0)
		x.hashPart(b, k, 1)
		x.chooseCandidates(b, k, 0)
	}
	x.hashPart(b, k, g+2)
	x.chooseCandidates(b, k, g+1)
	return x.comparePart(b, k, g)
}

// hashPart hashes a part of the keys and starts to fetch their buckets.
func (x *Index) hashPart(b *batch, k *keyArray, g int) {
	from, to, at := k.part(g)
	if from >= to {
		return
	}
	hashes := b.hash[at : at+to-from]
	switch {
	case to <= b.hashed:
	case x.badHash == nil && k.hashLen == 32:
		for i := range hashes {
			hashes[i] = x.hasher.sum32((*[32]byte)(k.keys[(from+i)*k.step:]))
		}
	default:
		for i := range hashes {
			hashes[i] = x.hash(k.keys[(from+i)*k.step:][:k.hashLen])
		}
	}
	buckets := b.bucket[at:][:len(hashes)]
	for i, h := range hashes {
		buckets[i] = x.table.bucket(h)
	}
	simd.Prefetch(buckets)
}

// chooseCandidates chooses for each key of a part the first slot that its tag points to, and
// starts to fetch the records there.
func (x *Index) chooseCandidates(b *batch, k *keyArray, g int) {
	from, to, at := k.part(g)
	if from >= to {
		return
	}
	var (
		tags  [partKeys]uint16
		masks [partKeys]uint16
		lines [2 * partKeys]*byte
	)
	n := to - from
	buckets := b.bucket[at : at+n]
	for i, h := range b.hash[at : at+n] {
		tags[i] = buckets[i].tag(h)
	}
	simd.MatchTags(masks[:n], unsafe.Slice((**[bucketCells]uint16)(unsafe.Pointer(&buckets[0])), n), tags[:n])
	fetch := 0
	for i, bk := range buckets {
		m := masks[i]
		b.more &^= 1 << (at + i)
		if bk.passed != 0 || m&(m-1) != 0 {
			b.more |= 1 << (at + i)
		}
		s := noSlot
		if m != 0 {
			s = slot(bk.slots[bits.TrailingZeros16(m)] - 1) // an empty cell gives noSlot
		}
		if b.slot[at+i] = s; s != noSlot {
			seg, j := x.at(s)
			lines[fetch] = (*byte)(unsafe.Add(unsafe.Pointer(seg.keys), j*k.hashLen))
			lines[fetch+1] = (*byte)(unsafe.Pointer(seg.classOfGroup(j)))
			fetch += 2
		}
	}
	simd.Prefetch(lines[:fetch])
}

// comparePart compares a part of the keys with their candidates, and returns their slots.
func (x *Index) comparePart(b *batch, k *keyArray, g int) []slot {
	from, to, at := k.part(g)
	slots := b.slot[at : at+to-from]
	for i, s := range slots {
		key := k.keys[(from+i)*k.step:][:k.hashLen]
		if s != noSlot {
			seg, j := x.at(s)
			if k.hashLen == 32 { // spares the usual hash a call
				if equal32((*[32]byte)(unsafe.Add(unsafe.Pointer(seg.keys), j*32)), (*[32]byte)(key)) {
					continue
				}
			} else if string(seg.key(j)) == string(key) {
				continue
			}
		}
		if slots[i] = noSlot; b.more>>(at+i)&1 == 1 {
			slots[i] = x.find(b.hash[at+i], key)
		}
	}
	return slots
}

func equal32(a, b *[32]byte) bool {
	diff := binary.LittleEndian.Uint64(a[0:]) ^ binary.LittleEndian.Uint64(b[0:])
	diff |= binary.LittleEndian.Uint64(a[8:]) ^ binary.LittleEndian.Uint64(b[8:])
	diff |= binary.LittleEndian.Uint64(a[16:]) ^ binary.LittleEndian.Uint64(b[16:])
	diff |= binary.LittleEndian.Uint64(a[24:]) ^ binary.LittleEndian.Uint64(b[24:])
	return diff == 0
}
