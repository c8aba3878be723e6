package lookup

import (
	"hash/maphash"
	"sync/atomic"
)

// foundTable is a set of blocks with the times at which they were found. Blocks are kept in the order in which
// they came, which is that of prompts: whoever has found one looks for the next one behind it, in memory that is
// near. It never grows: it is made with all its slots, and with room for more blocks one chunk at a time. So a put
// takes a bounded time, however full the table is. Not safe for concurrent use.
type foundTable struct {
	chunks []*[chunkBlocks]foundEntry
	blocks int      // in them
	slots  []uint32 // open addressing: 1 + the index of a block, 0 for none; a power of two of them
	seed   maphash.Seed
}

// foundEntry is a block of a table.
type foundEntry struct {
	foundBlock
	used    atomic.Bool // it was asked for again
	written int64       // when the call was written that has found it
}

// foundBlock names a block.
type foundBlock struct {
	group   foundGroup
	hashLen uint8
	hash    [maxFoundHashLen]byte
}

// equal compares the hashes first, which differ. For the whole struct the compiler calls a function.
func (b *foundBlock) equal(other *foundBlock) bool {
	return b.hash == other.hash && b.group == other.group && b.hashLen == other.hashLen
}

const (
	// chunkBlocks is the number of blocks of a chunk.
	chunkBlocks = 64
	// chunkBytes is what a chunk takes, with the pointer to it.
	chunkBytes = chunkBlocks*64 + 8
	// foundBlockBytes is what a block takes at most, about: its part of a chunk, and four slots.
	foundBlockBytes = (chunkBytes+chunkBlocks-1)/chunkBlocks + 4*4
)

// newFoundTable returns an empty table for so many blocks, a multiple of chunkBlocks.
func newFoundTable(maxBlocks int) *foundTable {
	return &foundTable{
		chunks: make([]*[chunkBlocks]foundEntry, 0, maxBlocks/chunkBlocks), slots: make([]uint32, numSlots(maxBlocks)),
		seed: maphash.MakeSeed(), // peers choose hashes
	}
}

// numSlots returns the number of slots of a table: at most half of them are used.
func numSlots(maxBlocks int) int {
	n := 1
	for n < 2*maxBlocks {
		n *= 2
	}
	return n
}

// bytes returns what the table takes; of nil 0.
func (t *foundTable) bytes() int64 {
	if t == nil {
		return 0
	}
	return int64(4*len(t.slots) + chunkBytes*len(t.chunks))
}

// len returns the number of blocks; of nil 0.
func (t *foundTable) len() int {
	if t == nil {
		return 0
	}
	return t.blocks
}

// at returns the block at an index.
func (t *foundTable) at(i int) *foundEntry { return &t.chunks[i/chunkBlocks][i%chunkBlocks] }

// find returns the index of a block, -1 if it is not there. It looks at index next first.
func (t *foundTable) find(b *foundBlock, next int) int {
	if t.len() == 0 {
		return -1
	}
	if t.isAt(b, next) {
		return next
	}
	return int(t.slots[t.slotOf(b)]) - 1
}

// isAt reports whether a block is at an index, which may be out of range.
func (t *foundTable) isAt(b *foundBlock, i int) bool {
	return uint(i) < uint(t.len()) && t.at(i).equal(b)
}

// use reports whether the block at an index was found after a time. If it was, it is used.
func (t *foundTable) use(i int, since int64) bool {
	e := t.at(i)
	if e.written <= since {
		return false
	}
	if !e.used.Load() { // others read the entry, too
		e.used.Store(true)
	}
	return true
}

// slotOf returns the slot of a block, or the one that it would have.
func (t *foundTable) slotOf(b *foundBlock) int {
	last := len(t.slots) - 1
	for slot := int(maphash.Comparable(t.seed, *b)) & last; ; slot = (slot + 1) & last {
		if i := int(t.slots[slot]) - 1; i < 0 || t.at(i).equal(b) {
			return slot
		}
	}
}

// put records that a block was found by a call that was written at a time, and returns its index. It looks at
// index next first. A block keeps the latest of its times. reserve is called for each chunk that the table
// needs. If it refuses, or the table is full, put returns -1.
func (t *foundTable) put(b *foundBlock, next int, written int64, reserve func(bytes int64) bool) int {
	i := next
	if !t.isAt(b, next) {
		slot := t.slotOf(b)
		if i = int(t.slots[slot]) - 1; i < 0 {
			if t.blocks == len(t.chunks)*chunkBlocks {
				if len(t.chunks) == cap(t.chunks) || !reserve(chunkBytes) {
					return -1
				}
				t.chunks = append(t.chunks, new([chunkBlocks]foundEntry))
			}
			i = t.blocks
			t.blocks++
			t.slots[slot] = uint32(i) + 1
			*t.at(i) = foundEntry{foundBlock: *b, written: written}
		}
	}
	e := t.at(i)
	e.written = max(e.written, written)
	return i
}

// addUsed puts the blocks of another table that are used and were found after a time, until half of t is full. Only other
// may be read meanwhile. reserve is as for put.
func (t *foundTable) addUsed(other *foundTable, since int64, reserve func(bytes int64) bool) {
	for i, last := 0, -1; i < other.len() && t.blocks < cap(t.chunks)*chunkBlocks/2; i++ {
		e := other.at(i)
		if !e.used.Load() || e.written <= since {
			continue
		}
		if last = t.put(&e.foundBlock, last+1, e.written, reserve); last < 0 {
			return
		}
	}
}
