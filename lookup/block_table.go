package lookup

import (
	"hash/maphash"
	"sync/atomic"
)

// blockTable is a set of blocks with the times at which they were found. Blocks are kept in the order in which
// they came, which is that of prompts: whoever has found one looks for the next one behind it, in memory that is
// near. It never grows: it is made with all its slots, and with room for more blocks one chunk at a time. So a put
// takes a bounded time, however full the table is. Not safe for concurrent use.
type blockTable struct {
	chunks []*[chunkBlocks]blockEntry
	blocks int      // in them
	slots  []uint32 // open addressing: 1 + the index of a block, 0 for none; a power of two of them
	seed   maphash.Seed
}

// blockEntry is a block of a table.
type blockEntry struct {
	groupBlock
	used    atomic.Bool // it was asked for again
	written int64       // when the call was written that has found it
}

// groupBlock names a block.
type groupBlock struct {
	group   groupKeys
	hashLen uint8
	hash    [maxRememberedHashLen]byte
}

// equal compares the hashes first, which differ. For the whole struct the compiler calls a function.
func (b *groupBlock) equal(other *groupBlock) bool {
	return b.hash == other.hash && b.group == other.group && b.hashLen == other.hashLen
}

const (
	// chunkBlocks is the number of blocks of a chunk.
	chunkBlocks = 64
	// chunkBytes is what a chunk takes, with the pointer to it.
	chunkBytes = chunkBlocks*64 + 8
	// tableBlockBytes is what a block takes at most, about: its part of a chunk, and four slots.
	tableBlockBytes = (chunkBytes+chunkBlocks-1)/chunkBlocks + 4*4
)

// newBlockTable returns an empty table for so many blocks, a multiple of chunkBlocks.
func newBlockTable(maxBlocks int) *blockTable {
	return &blockTable{
		chunks: make([]*[chunkBlocks]blockEntry, 0, maxBlocks/chunkBlocks), slots: make([]uint32, numSlots(maxBlocks)),
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
func (t *blockTable) bytes() int64 {
	if t == nil {
		return 0
	}
	return int64(4*len(t.slots) + chunkBytes*len(t.chunks))
}

// len returns the number of blocks; of nil 0.
func (t *blockTable) len() int {
	if t == nil {
		return 0
	}
	return t.blocks
}

// at returns the block at an index.
func (t *blockTable) at(i int) *blockEntry { return &t.chunks[i/chunkBlocks][i%chunkBlocks] }

// find returns the index of a block, -1 if it is not there. It looks at index next first.
func (t *blockTable) find(b *groupBlock, next int) int {
	if t.len() == 0 {
		return -1
	}
	if t.isAt(b, next) {
		return next
	}
	return int(t.slots[t.slotOf(b)]) - 1
}

// isAt reports whether a block is at an index, which may be out of range.
func (t *blockTable) isAt(b *groupBlock, i int) bool {
	return uint(i) < uint(t.len()) && t.at(i).equal(b)
}

// use reports whether the block at an index was found after a time. If it was, it is used.
func (t *blockTable) use(i int, since int64) bool {
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
func (t *blockTable) slotOf(b *groupBlock) int {
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
func (t *blockTable) put(b *groupBlock, next int, written int64, reserve func(bytes int64) bool) int {
	i := next
	if !t.isAt(b, next) {
		slot := t.slotOf(b)
		if i = int(t.slots[slot]) - 1; i < 0 {
			if t.blocks == len(t.chunks)*chunkBlocks {
				if len(t.chunks) == cap(t.chunks) || !reserve(chunkBytes) {
					return -1
				}
				t.chunks = append(t.chunks, new([chunkBlocks]blockEntry))
			}
			i = t.blocks
			t.blocks++
			t.slots[slot] = uint32(i) + 1
			*t.at(i) = blockEntry{groupBlock: *b, written: written}
		}
	}
	e := t.at(i)
	e.written = max(e.written, written)
	return i
}

// addUsed puts the blocks of another table that are used and were found after a time, until half of t is full. Only other
// may be read meanwhile. reserve is as for put.
func (t *blockTable) addUsed(other *blockTable, since int64, reserve func(bytes int64) bool) {
	for i, last := 0, -1; i < other.len() && t.blocks < cap(t.chunks)*chunkBlocks/2; i++ {
		e := other.at(i)
		if !e.used.Load() || e.written <= since {
			continue
		}
		if last = t.put(&e.groupBlock, last+1, e.written, reserve); last < 0 {
			return
		}
	}
}
