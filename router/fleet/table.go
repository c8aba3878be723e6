package fleet

import (
	"hash/maphash"
	"math/bits"
	"unsafe"
)

const (
	bucketBits = 10
	bucketLen  = 1 << bucketBits
	// maxBucket is how many slots of a bucket are used: linear probing slows down steeply above this load.
	maxBucket = bucketLen / 16 * 13
)

// bucket is a part of a table: an open-addressing hash table with linear probing. A slot is
//
//	sum (32 bits) | position + 1 (32 bits); 0 is an empty slot
//
// Its home is the low bits of the sum. Removal shifts later slots back, so there are no tombstones.
type bucket struct {
	slots *[bucketLen]uint64 // of its own, as 8 KiB are allocated without a rest
	n     int32
	depth uint8 // how many leading bits of the sums are equal in the bucket
}

func newBucket(depth uint8) *bucket { return &bucket{slots: new([bucketLen]uint64), depth: depth} }

// dirEntry finds a bucket, and its slots without a look at it.
type dirEntry struct {
	slots  *[bucketLen]uint64
	bucket *bucket
}

const (
	bucketBytes   = int64(unsafe.Sizeof(bucket{})) + bucketLen*8
	dirEntryBytes = int64(unsafe.Sizeof(dirEntry{}))
)

// table finds the position of a key in the log. Buckets are found by the leading bits of the key's sum, and a full
// one is split in two (extendible hashing): growing never moves more than a bucket. A secret makes the sums, so that
// no publisher can choose keys that collide.
type table struct {
	dir     []dirEntry // 1 << depth of them; a bucket of less depth is there several times
	depth   uint8
	buckets int64
	secret  [2]uint64
	ahead   uint64 // what readAhead read, so that the reads are not optimized away
}

func newTable() table {
	b := newBucket(0)
	t := table{dir: []dirEntry{{b.slots, b}}, buckets: 1}
	for i := range t.secret {
		t.secret[i] = maphash.String(maphash.MakeSeed(), "") | 1
	}
	return t
}

func (t *table) bytes() int64 { return t.buckets*bucketBytes + int64(len(t.dir))*dirEntryBytes }

// sum hashes a key. Two rounds: one product alone keeps an order of near keys in its upper half.
func (t *table) sum(key uint64) uint32 {
	hi, lo := bits.Mul64(key^t.secret[0], t.secret[1])
	hi, lo = bits.Mul64(hi^lo^t.secret[1], t.secret[0])
	return uint32((hi ^ lo) >> 32)
}

func (t *table) entry(sum uint32) *dirEntry { return &t.dir[uint64(sum)>>(32-t.depth)] }

func (t *table) bucket(sum uint32) *bucket { return t.entry(sum).bucket }

// readAhead reads the home slots of some keys: the reads of all wait for memory together, and find has the slots in
// the cache.
func (t *table) readAhead(keys []uint64) {
	var slots uint64
	for _, key := range keys {
		sum := t.sum(key)
		slots |= t.entry(sum).slots[sum%bucketLen]
	}
	t.ahead = slots
}

// find returns the position of a key.
func (t *table) find(l *recordLog, key uint64) (pos uint32, ok bool) {
	sum := t.sum(key)
	slots := t.entry(sum).slots
	for i := sum; ; i++ {
		slot := slots[i%bucketLen]
		if slot == 0 {
			return 0, false
		}
		if uint32(slot>>32) == sum {
			pos := uint32(slot) - 1
			if s, j := l.at(pos); s.keys[j] == key {
				return pos, true
			}
		}
	}
}

// growth returns how many bytes an insertion of key may allocate.
func (t *table) growth(key uint64) int64 {
	sum := t.sum(key)
	b := t.bucket(sum)
	switch {
	case b.n < maxBucket:
		return 0
	case b.depth == t.depth:
		return bucketBytes + int64(len(t.dir))*dirEntryBytes
	}
	return bucketBytes
}

// insert adds a key that is not there, at a position.
func (t *table) insert(key uint64, pos uint32) {
	sum := t.sum(key)
	b := t.bucket(sum)
	for b.n >= maxBucket {
		t.split(b, sum)
		b = t.bucket(sum)
	}
	b.insert(uint64(sum)<<32 | uint64(pos) + 1)
}

func (b *bucket) insert(slot uint64) {
	i := uint32(slot >> 32)
	for b.slots[i%bucketLen] != 0 {
		i++
	}
	b.slots[i%bucketLen] = slot
	b.n++
}

// split moves the keys of a bucket whose next bit is 1 to a new one. sum is of a key in it.
func (t *table) split(b *bucket, sum uint32) {
	if b.depth == t.depth {
		dir := make([]dirEntry, 2*len(t.dir))
		for i, e := range t.dir {
			dir[2*i], dir[2*i+1] = e, e
		}
		t.dir = dir
		t.depth++
	}
	shift := 31 - b.depth // of the next bit in a sum
	one := newBucket(b.depth + 1)
	slots := *b.slots
	*b.slots, b.n, b.depth = [bucketLen]uint64{}, 0, one.depth
	for _, slot := range slots {
		switch {
		case slot == 0:
		case slot>>(32+shift)&1 == 1:
			one.insert(slot)
		default:
			b.insert(slot)
		}
	}
	// The bucket is in 1 << (t.depth - old depth) entries of dir that follow each other; the upper half is the
	// new one's.
	width := 1 << (t.depth - one.depth)
	first := int(uint64(sum)>>(32-t.depth)) &^ (2*width - 1)
	for i := first + width; i < first+2*width; i++ {
		t.dir[i] = dirEntry{one.slots, one}
	}
	t.buckets++
}

// slot returns the index of the slot of a key at a position, -1 if there is none.
func (b *bucket) slot(sum, pos uint32) int {
	want := uint64(sum)<<32 | uint64(pos) + 1
	for i := sum; ; i++ {
		switch b.slots[i%bucketLen] {
		case 0:
			return -1
		case want:
			return int(i % bucketLen)
		}
	}
}

// move changes the position of a key.
func (t *table) move(key uint64, from, to uint32) {
	sum := t.sum(key)
	b := t.bucket(sum)
	if i := b.slot(sum, from); i >= 0 {
		b.slots[i] = uint64(sum)<<32 | uint64(to) + 1
	}
}

// remove removes a key that is at a position.
func (t *table) remove(key uint64, pos uint32) {
	sum := t.sum(key)
	b := t.bucket(sum)
	gap := b.slot(sum, pos)
	if gap < 0 {
		return
	}
	b.n--
	for i := gap; ; {
		i = (i + 1) % bucketLen
		slot := b.slots[i]
		if slot == 0 {
			break
		}
		fromHome := (i - int(slot>>32)) & (bucketLen - 1)
		fromGap := (i - gap) & (bucketLen - 1)
		if fromHome >= fromGap {
			b.slots[gap] = slot
			gap = i
		}
	}
	b.slots[gap] = 0
}
