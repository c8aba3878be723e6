package fleet

import (
	"math/bits"
	"slices"
)

// pair says which of 64 holders have a block in one group and tier: bit i is holder number 64*word + i.
type pair struct {
	groupTier uint32 // number of a group and tier, or predictedIn and an epoch
	word      uint32
	bits      uint64
}

// predictedIn marks the group and tier of a pair as predicted: the other bits are the epoch.
const predictedIn = 1 << 31

// holderSet is who holds a block where. It is immutable once it is in a setTable, so a query may go on using it
// without the lock.
type holderSet struct {
	num   uint32
	hash  uint64
	pairs []pair // by groupTier and word; no bits are 0
}

// setEntry is a set number.
type setEntry struct {
	set  *holderSet // of this number, or the empty one; nil: the number is free
	refs uint32     // records with this number; the next free number, 0 for none, if it is free
}

const (
	setChunkLen = 256
	// setBytes is the memory of a set besides its pairs and the intern map, estimated high: the object and the slice
	// (48 and up to 24 for rounding), the entry (16).
	setBytes = 88
	// internBytes is that of an entry of the intern map when the map has just grown. It never shrinks.
	internBytes = 40
	pairBytes   = 18 // with the rounding of allocations
	blockBytes  = 25 // of a record and its slot in the table
)

// setTable has the sets by number. Equal sets are one, but those that a sweep made equal. Number 0 is the empty set.
type setTable struct {
	chunks  []*[setChunkLen]setEntry
	free    uint32            // 0: none
	intern  map[uint64]uint32 // number by hash
	most    int               // entries that intern has had at a time
	next    uint32            // number that was never used
	count   int               // of different sets, without the empty one
	size    int64             // bytes of the sets
	secret  uint64
	empty   *holderSet
	numbers *numberTable // whose holders are charged
}

func newSetTable(secret uint64, numbers *numberTable) setTable {
	t := setTable{intern: map[uint64]uint32{}, secret: secret, empty: &holderSet{}, numbers: numbers}
	t.entry(t.newNum()).set = t.empty
	return t
}

func (t *setTable) bytes() int64 {
	return t.size + int64(len(t.chunks))*(setChunkLen*16+8) + int64(t.most)*internBytes
}

func (t *setTable) entry(num uint32) *setEntry { return &t.chunks[num/setChunkLen][num%setChunkLen] }

// at returns the set of a number.
func (t *setTable) at(num uint32) *holderSet { return t.chunks[num/setChunkLen][num%setChunkLen].set }

func (t *setTable) newNum() uint32 {
	if num := t.free; num != 0 {
		t.free = t.entry(num).refs
		return num
	}
	if t.next%setChunkLen == 0 {
		t.chunks = append(t.chunks, new([setChunkLen]setEntry))
	}
	t.next++
	return t.next - 1
}

func sizeOfSet(pairs int) int64 { return setBytes + int64(pairs)*pairBytes }

// blocks returns how many blocks take as much memory as the set.
func (s *holderSet) blocks() int {
	return int((sizeOfSet(len(s.pairs)) + internBytes + 16) / blockBytes)
}

// hash returns the hash of a content, never 0.
func (t *setTable) hash(pairs []pair) uint64 {
	h := t.secret
	for i := range pairs {
		p := &pairs[i]
		hi, lo := bits.Mul64(h^(uint64(p.groupTier)<<32|uint64(p.word)), 0x9E3779B97F4A7C15|t.secret&^1)
		h = hi ^ lo
		hi, lo = bits.Mul64(h^p.bits, 0xD6E8FEB86659FD93)
		h = hi ^ lo
	}
	return h | 1
}

// find returns the set of a content, nil if there is none. pairs is only borrowed.
func (t *setTable) find(pairs []pair, hash uint64) *holderSet {
	if len(pairs) == 0 {
		return t.empty
	}
	num, ok := t.intern[hash]
	if !ok {
		return nil
	}
	if set := t.at(num); slices.Equal(set.pairs, pairs) {
		return set
	}
	return nil
}

// add adds a set that find does not find, without references.
func (t *setTable) add(pairs []pair, hash uint64) *holderSet {
	num := t.newNum()
	*t.entry(num) = setEntry{}
	return t.put(num, pairs, hash)
}

// put makes a new set that of a number. If another one has its hash, it is not interned.
func (t *setTable) put(num uint32, pairs []pair, hash uint64) *holderSet {
	set := &holderSet{num: num, hash: hash, pairs: slices.Clone(pairs)}
	t.entry(num).set = set
	if _, taken := t.intern[hash]; !taken {
		t.intern[hash] = num
		t.most = max(t.most, len(t.intern))
	}
	t.count++
	t.size += sizeOfSet(len(pairs))
	t.charge(set, 1)
	return set
}

// drop removes a set, unless it is the empty one.
func (t *setTable) drop(set *holderSet) {
	if set == t.empty {
		return
	}
	if t.intern[set.hash] == set.num {
		delete(t.intern, set.hash)
		if len(t.intern) == 0 && t.most > setChunkLen {
			t.intern, t.most = map[uint64]uint32{}, 0
		}
	}
	t.count--
	t.size -= sizeOfSet(len(set.pairs))
	t.charge(set, -1)
}

// charge charges a set, as a number of blocks that take as much memory, to one of its holders, or not any more with sign -1.
// The secret hash chooses it among the pairs, so that holders have their part of what they share, and one that stores its
// blocks in many groups and tiers pays for their sets. A holder that has got another number since is charged nothing.
func (t *setTable) charge(set *holderSet, sign int) {
	p := &set.pairs[set.hash>>32%uint64(len(set.pairs))]
	if p.groupTier&predictedIn != 0 {
		return
	}
	first := int(set.hash >> 1 % 64)
	bit := (bits.TrailingZeros64(bits.RotateLeft64(p.bits, -first)) + first) % 64
	if h := t.numbers.list[p.word*64+uint32(bit)].holder; h != nil {
		h.charged += sign * set.blocks()
	}
}

// unref removes a record's reference, and frees the number if it was the last.
func (t *setTable) unref(num uint32) {
	t.entry(num).refs--
	t.freeUnused(num)
}

// freeUnused frees a number without references.
func (t *setTable) freeUnused(num uint32) {
	e := t.entry(num)
	if num == 0 || e.refs > 0 || e.set == nil {
		return
	}
	t.drop(e.set)
	*e = setEntry{refs: t.free}
	t.free = num
}

// retarget gives a number with a set another content.
func (t *setTable) retarget(num uint32, pairs []pair) {
	e := t.entry(num)
	t.drop(e.set)
	if len(pairs) == 0 {
		e.set = t.empty
	} else {
		t.put(num, pairs, t.hash(pairs))
	}
}
