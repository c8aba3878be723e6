package lookup

import "hash/maphash"

// foundTable is a set of blocks with the times at which they were found. Blocks are kept in the order in which
// they came, which is that of prompts: whoever has found one looks for the next one behind it, in memory that is
// near. Not safe for concurrent use.
type foundTable struct {
	blocks  []foundBlock
	written []int64  // by block
	slots   []uint32 // open addressing: 1 + the index of a block, 0 for none; a power of two of them
	seed    maphash.Seed
}

// foundBlock names a block.
type foundBlock struct {
	group   foundGroup
	hashLen uint8
	hash    [maxFoundHashLen]byte
}

// foundBlockBytes is what a block takes at most, about: 57 bytes, twice while slices are short, and four slots.
const foundBlockBytes = 128

// len returns the number of blocks; of nil 0.
func (t *foundTable) len() int {
	if t == nil {
		return 0
	}
	return len(t.blocks)
}

// find returns the index of a block, -1 if it is not there. It looks at index next first.
func (t *foundTable) find(b *foundBlock, next int) int {
	if t == nil || len(t.blocks) == 0 {
		return -1
	}
	if t.isAt(b, next) {
		return next
	}
	for slot := t.slotOf(b); ; slot++ {
		i := int(t.slots[slot&uint64(len(t.slots)-1)]) - 1
		if i < 0 || t.blocks[i] == *b {
			return i
		}
	}
}

// isAt reports whether a block is at an index, which may be out of range.
func (t *foundTable) isAt(b *foundBlock, i int) bool {
	return t != nil && uint(i) < uint(len(t.blocks)) && t.blocks[i] == *b
}

// put records that a block was found by a call that was written at a time, and returns its index. It looks at
// index next first. A block keeps the latest of its times.
func (t *foundTable) put(b *foundBlock, next int, written int64) int {
	i := t.find(b, next)
	if i >= 0 {
		t.written[i] = max(t.written[i], written)
		return i
	}
	t.blocks, t.written = append(t.blocks, *b), append(t.written, written)
	if 2*len(t.blocks) > len(t.slots) {
		t.grow()
	} else {
		t.fill(len(t.blocks) - 1)
	}
	return len(t.blocks) - 1
}

// grow doubles the slots.
func (t *foundTable) grow() {
	if t.slots == nil {
		t.seed = maphash.MakeSeed() // peers choose hashes
	}
	t.slots = make([]uint32, max(64, 2*len(t.slots)))
	for i := range t.blocks {
		t.fill(i)
	}
}

// fill fills a slot for a block.
func (t *foundTable) fill(i int) {
	slot := t.slotOf(&t.blocks[i])
	for t.slots[slot&uint64(len(t.slots)-1)] != 0 {
		slot++
	}
	t.slots[slot&uint64(len(t.slots)-1)] = uint32(i) + 1
}

// slotOf returns the first slot that a block may have, not reduced to the number of slots.
func (t *foundTable) slotOf(b *foundBlock) uint64 {
	return maphash.Comparable(t.seed, *b)
}
