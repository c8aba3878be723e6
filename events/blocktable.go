package events

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
)

// blockTable is a set of (hash, place) that remembers the order of insertion. The zero value is
// empty; init comes before the first insertion. Not safe for concurrent use.
//
// Records lie in the order of insertion in two parallel arrays. A removed record stays until a
// compaction, which runs when the arrays are full and a quarter of them is removed. Slots are an
// open-addressing hash table of record numbers, with linear probing:
//
//	slot: sum (32 bits) | record number + 1 (32 bits); 0 is an empty slot
//
// The home of a sum is sum*len(slots)>>32, so slots are nearly sorted by sum: growing copies them
// in order, without a look at the records. Removal shifts later slots back, so that there are no
// tombstones. A block of 8 bytes takes 10 to 13.3 bytes of records and 9.8 to 14.8 of slots.
type blockTable struct {
	hashLen int
	hashes  []byte    // of the records, joined
	places  []placeID // of the records, removedPlace if the record is removed
	slots   []uint64
	live    int // records that are not removed
	ahead   uint64
	seed    maphash.Seed
	secret  [2]uint64
}

const (
	removedPlace = placeID(0xFFFF) // above maxPlaces

	// maxAhead is for how many blocks memory is read at once: about as many reads as a core
	// keeps waiting for.
	maxAhead = 32

	minRecords = 64
	minSlots   = 96

	// maxRecords is what a slot, and an int, can number. Half of them may be live.
	maxRecords = min(1<<32-2, math.MaxInt)
)

// full reports whether n slots are too few for live records: linear probing slows down
// steeply above this load, 13/16.
func full(live, n int) bool { return live > n/16*13 }

// init makes the slots, and draws the secret of the sums, so that no publisher can choose hashes
// that collide.
func (t *blockTable) init(hashLen int) {
	*t = blockTable{hashLen: hashLen, slots: make([]uint64, minSlots)}
	t.seed = maphash.MakeSeed()
	for i := range t.secret {
		t.secret[i] = maphash.String(maphash.MakeSeed(), "")
	}
}

// sum hashes a block hash and its place.
func (t *blockTable) sum(hash []byte, at placeID) uint32 {
	var word uint64
	if len(hash) == 8 {
		word = binary.LittleEndian.Uint64(hash)
	} else {
		word = maphash.Bytes(t.seed, hash)
	}
	// Two rounds: one product alone keeps an order of near words in its upper half.
	hi, lo := bits.Mul64(word^t.secret[0], t.secret[1]^uint64(at)<<32|1)
	hi, lo = bits.Mul64(hi^lo^t.secret[1], t.secret[0]|1)
	return uint32((hi ^ lo) >> 32)
}

func (t *blockTable) home(sum uint32) int {
	return int(uint64(sum) * uint64(len(t.slots)) >> 32)
}

func (t *blockTable) hash(record int) []byte {
	return t.hashes[record*t.hashLen : (record+1)*t.hashLen]
}

// find returns the slot of a block, or -1 and the empty slot where it may be inserted.
func (t *blockTable) find(hash []byte, at placeID, sum uint32) (slot, empty int) {
	for i := t.home(sum); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		e := t.slots[i]
		if e == 0 {
			return -1, i
		}
		if uint32(e>>32) == sum {
			if r := int(uint32(e)) - 1; t.places[r] == at && bytes.Equal(t.hash(r), hash) {
				return i, -1
			}
		}
	}
}

// sumAll hashes up to maxAhead block hashes, joined, of one place, and reads the first slot of
// each: the reads of all wait for memory together, and find has the slots in the cache.
func (t *blockTable) sumAll(sums *[maxAhead]uint32, hashes []byte, at placeID) {
	var slots uint64
	for i := 0; len(hashes) > 0; i++ {
		sums[i] = t.sum(hashes[:t.hashLen], at)
		if len(t.slots) > 0 {
			slots |= t.slots[t.home(sums[i])]
		}
		hashes = hashes[t.hashLen:]
	}
	t.ahead = slots // so that the reads are not optimized away
}

// contains reports whether a block is in the table.
func (t *blockTable) contains(hash []byte, at placeID) bool {
	if t.live == 0 || len(hash) != t.hashLen {
		return false
	}
	slot, _ := t.find(hash, at, t.sum(hash, at))
	return slot >= 0
}

// insert adds a block with its sum unless it is there, or live has reached limit: then it returns
// ok false. init comes before the first.
func (t *blockTable) insert(hash []byte, at placeID, sum uint32, limit int) (held, ok bool) {
	slot, empty := t.find(hash, at, sum)
	if slot >= 0 {
		return true, true
	}
	if t.live >= limit {
		return false, false
	}
	if len(t.places) == cap(t.places) {
		if !t.makeRecords() {
			return false, false
		}
	}
	if full(t.live+1, len(t.slots)) {
		t.growSlots()
		_, empty = t.find(hash, at, sum)
	}
	t.hashes = append(t.hashes, hash...)
	t.places = append(t.places, at)
	t.slots[empty] = uint64(sum)<<32 | uint64(len(t.places))
	t.live++
	return false, true
}

// remove removes a block with its sum and reports whether it was there.
func (t *blockTable) remove(hash []byte, at placeID, sum uint32) bool {
	if t.live == 0 {
		return false
	}
	slot, _ := t.find(hash, at, sum)
	if slot < 0 {
		return false
	}
	t.places[int(uint32(t.slots[slot]))-1] = removedPlace
	t.closeSlot(slot)
	t.live--
	if t.live == 0 {
		t.hashes, t.places = t.hashes[:0], t.places[:0]
	}
	return true
}

// closeSlot empties a slot and shifts the ones behind it back, up to the next empty slot.
func (t *blockTable) closeSlot(hole int) {
	n := len(t.slots)
	for i := hole; ; {
		if i++; i == n {
			i = 0
		}
		e := t.slots[i]
		if e == 0 {
			break
		}
		fromHome, fromHole := i-t.home(uint32(e>>32)), i-hole
		if fromHome < 0 {
			fromHome += n
		}
		if fromHole < 0 {
			fromHole += n
		}
		if fromHome >= fromHole {
			t.slots[hole] = e
			hole = i
		}
	}
	t.slots[hole] = 0
}

// growSlots makes the slots half as many again.
func (t *blockTable) growSlots() {
	old := t.slots
	t.slots = make([]uint64, len(old)/2*3)
	for _, e := range old {
		if e == 0 {
			continue
		}
		i := t.home(uint32(e >> 32))
		for t.slots[i] != 0 {
			if i++; i == len(t.slots) {
				i = 0
			}
		}
		t.slots[i] = e
	}
}

// makeRecords makes place for another record. It fails if there are maxRecords.
func (t *blockTable) makeRecords() bool {
	n := len(t.places)
	if n-t.live >= n/4 && n > t.live {
		t.compact()
		return true
	}
	if n >= maxRecords {
		return false
	}
	grown := min(max(minRecords, n+n/4), maxRecords)
	// make and copy: append would round up to more than a quarter.
	hashes := make([]byte, len(t.hashes), grown*t.hashLen)
	copy(hashes, t.hashes)
	places := make([]placeID, n, grown)
	copy(places, t.places)
	t.hashes, t.places = hashes, places
	return true
}

// compact drops the removed records and renumbers the others in the slots.
func (t *blockTable) compact() {
	// before[i] are the live records before record 64*i, and kept[i] has a bit for each live
	// record of the 64 from there on: 12 bytes for 64 records, instead of a number for each.
	words := (len(t.places) + 63) / 64
	before, kept := make([]uint32, words), make([]uint64, words)
	to := 0
	for r, at := range t.places {
		if r%64 == 0 {
			before[r/64] = uint32(to)
		}
		if at == removedPlace {
			continue
		}
		kept[r/64] |= 1 << (r % 64)
		if to != r {
			t.places[to] = at
			copy(t.hashes[to*t.hashLen:(to+1)*t.hashLen], t.hash(r))
		}
		to++
	}
	t.places, t.hashes = t.places[:to], t.hashes[:to*t.hashLen]
	for i, e := range t.slots {
		if e == 0 {
			continue
		}
		r := uint32(e) - 1
		rank := before[r/64] + uint32(bits.OnesCount64(kept[r/64]&(1<<(r%64)-1)))
		t.slots[i] = e>>32<<32 | uint64(rank+1)
	}
}

// reset removes everything and frees the memory.
func (t *blockTable) reset() { *t = blockTable{} }
