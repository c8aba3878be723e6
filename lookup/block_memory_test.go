package lookup

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// numberedHashes returns n hashes of hashLen bytes that begin with their number, from first on.
func numberedHashes(first, n, hashLen int) coordinator.Hashes {
	blob := make([]byte, n*hashLen)
	for i := range n {
		binary.BigEndian.PutUint32(blob[i*hashLen:], uint32(first+i))
	}
	return coordinator.NewHashes(blob, hashLen)
}

// newTestFound returns one that remembers for 10 ns, and its clock. Its epoch is 0.
func newTestFound(maxBytes int64, account *MemoryAccount) (f *blockMemory, now *int64) {
	f, now = newBlockMemory(maxBytes, account, func() uint64 { return 0 }), new(int64)
	*now = 100
	f.now = func() int64 { return *now }
	f.setKeep(10)
	return f, now
}

// A block is found for age from the time at which its call began, in its group only.
func TestFoundBlocksAge(t *testing.T) {
	f, now := newTestFound(1<<20, nil)
	hashes := numberedHashes(1, 300, 32)
	g, other := newGroupKeys([]string{"a@", "b@"}), newGroupKeys([]string{"a@", "c@"})
	require.Equal(t, g, newGroupKeys([]string{"a@", "b@"}))
	assert.NotEqual(t, g, newGroupKeys([]string{"a@b@"}))

	call := f.begin()
	*now += 3
	f.add(call, g, hashes, 3, 4, 0b1011)
	for _, age := range []int64{0, 3} {
		assert.Zero(t, f.lookup(g, hashes, 3, 4, ^uint64(0), age), "as old as the call")
	}
	assert.Equal(t, uint64(0b1011), f.lookup(g, hashes, 3, 4, ^uint64(0), 4))
	assert.Equal(t, uint64(0b10), f.lookup(g, hashes, 3, 4, 0b110, 4), "only those asked about")
	assert.Equal(t, uint64(0b1), f.lookup(g, hashes, 7, 1, 1, 4), "at another position")
	assert.Zero(t, f.lookup(other, hashes, 3, 4, ^uint64(0), 4))
	assert.Zero(t, f.lookup(g, coordinator.NewHashes(hashes.Bytes()[3*32:], 31), 0, 1, 1, 4), "a shorter hash")
	long := numberedHashes(1, 1, 64)
	f.add(f.begin(), g, long, 0, 1, 1)
	assert.Zero(t, f.lookup(g, long, 0, 1, 1, 4), "longer than any engine's")
	f.add(f.begin(), g, hashes, 7, 1, 1)
	*now += 7
	assert.Equal(t, uint64(0b10), f.lookup(g, hashes, 3, 4, ^uint64(0), 10), "renewed")
	f.add(call, g, hashes, 7, 1, 1)
	assert.Equal(t, uint64(0b10), f.lookup(g, hashes, 3, 4, ^uint64(0), 10), "an older call makes nothing older")
}

// Nothing outlives its epoch, and no call that began in an older one adds anything.
func TestFoundBlocksOfAnEpoch(t *testing.T) {
	f, _ := newTestFound(1<<20, nil)
	epoch := uint64(0)
	f.storeEpoch = func() uint64 { return epoch }
	hashes, g := numberedHashes(1, 64, 16), newGroupKeys([]string{"a@"})
	call := f.begin()
	f.add(call, g, hashes, 0, 1, 1)
	require.NotZero(t, f.lookup(g, hashes, 0, 1, 1, 1))
	epoch++
	assert.Zero(t, f.lookup(g, hashes, 0, 1, 3, 1))
	f.add(call, g, hashes, 0, 1, 2)
	assert.Zero(t, f.lookup(g, hashes, 0, 1, 3, 1))
	f.add(f.begin(), g, hashes, 0, 1, 0b100)
	assert.Equal(t, uint64(0b100), f.lookup(g, hashes, 0, 1, 0b111, 1))
	f.setKeep(0)
	assert.Zero(t, f.lookup(g, hashes, 0, 1, 0b111, 1))
	f.add(f.begin(), g, hashes, 0, 1, 1)
	assert.Zero(t, f.lookup(g, hashes, 0, 1, 1, 1), "nothing is remembered")
}

// A block that was asked for again does not outlive its epoch either, which ends while a generation is made.
func TestUsedBlocksOfAnEpoch(t *testing.T) {
	f, now := newTestFound(1<<20, nil)
	epoch := uint64(0)
	f.storeEpoch = func() uint64 { return epoch }
	hashes, g := numberedHashes(1, 64, 16), newGroupKeys([]string{"a@"})
	f.add(f.begin(), g, hashes, 0, 1, 1)
	*now += 10
	f.add(f.begin(), g, hashes, 0, 1, 2)
	f.setKeep(100)
	require.EqualValues(t, 1, f.lookup(g, hashes, 0, 1, 1, 100), "used")
	f.newTable = func(maxBlocks int) *blockTable {
		epoch++
		f.dropOlder(epoch)
		return newBlockTable(maxBlocks)
	}
	*now += 100
	f.setKeep(1000)
	f.young.blocks = f.maxBlocks // full
	f.add(f.begin(), g, hashes, 0, 1, 4)
	require.Zero(t, f.lookup(g, hashes, 0, 1, 1, 1000))
}

// Two generations are kept, each of at most half the bytes, and the account counts them.
func TestFoundBlocksAreBounded(t *testing.T) {
	const maxBytes = 2 * 1000 * tableBlockBytes
	account := NewMemoryAccount(2 * maxBytes)
	f, now := newTestFound(maxBytes, account)
	g := newGroupKeys([]string{"a@"})
	usage := func() (bytes, refused int64) { bytes, _, refused = account.Usage(); return bytes, refused }
	for i := range 100 {
		for range 2 {
			f.add(f.begin(), g, numberedHashes(64*i, 64, 32), 0, 1, ^uint64(0))
		}
		used, _ := usage()
		require.LessOrEqual(t, used, int64(maxBytes))
		require.Equal(t, f.young.bytes()+f.old.bytes(), used)
		require.LessOrEqual(t, f.young.len(), f.maxBlocks)
		if back := f.maxBlocks/64/2 - 2; i >= back { // used ones have half a generation
			require.Equal(t, ^uint64(0), f.lookup(g, numberedHashes(64*(i-back), 64, 32), 0, 1, ^uint64(0), 1), i)
		}
	}
	*now += 10
	f.add(f.begin(), g, numberedHashes(0, 64, 32), 0, 1, 1)
	require.Equal(t, 1, f.young.len(), "a generation ends with keep")
	*now += 10
	f.add(f.begin(), g, numberedHashes(0, 64, 32), 0, 1, 1)
	require.Equal(t, 2, f.young.len()+f.old.len())
	f.setKeep(0)
	used, _ := usage()
	require.Zero(t, used)
	f.setKeep(10)
	f.add(f.begin(), g, numberedHashes(0, 1, 32), 0, 1, 1)
	table := f.young.bytes()
	f.dropOlder(1)
	used, _ = usage()
	require.Zero(t, used)
	f.storeEpoch = func() uint64 { return 1 }
	require.True(t, account.Reserve(2*maxBytes-table+1), "others take the rest")
	f.add(f.begin(), g, numberedHashes(0, 64, 32), 0, 1, ^uint64(0))
	require.Zero(t, f.young.len(), "a full account")
	account.Free(chunkBytes)
	f.add(f.begin(), g, numberedHashes(0, 65, 32), 0, 1, ^uint64(0))
	f.add(f.begin(), g, numberedHashes(0, 65, 32), 64, 1, 1)
	require.Equal(t, 64, f.young.len(), "one that is full soon")
	_, refused := usage()
	require.Zero(t, refused, "no request was refused")
}

// Who asks for many blocks once takes no place of blocks that are asked for again and again, as long as these are at most half
// a generation.
func TestUsedBlocksStay(t *testing.T) {
	f, _ := newTestFound(2*1000*tableBlockBytes, nil)
	g := newGroupKeys([]string{"a@"})
	const all = ^uint64(0)
	half := f.maxBlocks / 2 / 64
	record := func(from, to int) {
		for i := from; i < to; i++ {
			f.add(f.begin(), g, numberedHashes(64*i, 64, 32), 0, 1, all)
		}
	}
	numFound := func(from, to int) (n int) {
		for i := from; i < to; i++ {
			n += bits.OnesCount64(f.lookup(g, numberedHashes(64*i, 64, 32), 0, 1, all, 1))
		}
		return n
	}
	record(0, half+3)
	for i := range 100 {
		require.GreaterOrEqual(t, numFound(0, half), 64*half, i)
		record(1000+half*i, 1000+half*(i+1))
	}
	require.Zero(t, numFound(half, half+3), "asked for once")
	require.Zero(t, numFound(1000, 1100), "likewise")
	require.LessOrEqual(t, numFound(1000+98*half, 1000+100*half), 64*2*half)
	record(3000, 3000+4*half)
	record(3000, 3000+4*half)
	record(4000, 4000+4*half)
	require.Zero(t, numFound(3000, 3000+4*half), "nobody has asked")
}

// While mu is held nothing is done that grows with the blocks that are remembered: tables are made without it, and
// record then fills slots for 64 blocks, and one chunk. An event loop that only reads waits for no more than that.
func TestFoundBlocksHoldTheirLockBriefly(t *testing.T) {
	f, now := newTestFound(maxRememberedBytes, nil)
	tables := 0
	f.newTable = func(maxBlocks int) *blockTable {
		tables++
		require.True(t, f.mu.TryLock(), "a table is made while the lock is held")
		f.mu.Unlock()
		return newBlockTable(maxBlocks)
	}
	g := newGroupKeys([]string{"a@"})
	hashes := numberedHashes(0, f.maxBlocks+2*64, 32)
	f.add(f.begin(), g, hashes, 0, 1, ^uint64(0))
	full, slots, places := f.young, &f.young.slots[0], cap(f.young.chunks)
	for first := 64; tables == 1; first += 64 {
		chunks := len(full.chunks)
		f.add(f.begin(), g, hashes, first, 1, ^uint64(0))
		require.LessOrEqual(t, len(full.chunks), chunks+1)
	}
	require.Same(t, full, f.old)
	require.Equal(t, f.maxBlocks, full.len())
	require.Same(t, slots, &full.slots[0], "slots are not copied")
	require.Equal(t, places, cap(full.chunks), "neither are chunks")
	n := len(full.slots)
	looked, most := 0, 0 // at slots, for one block
	for i := range full.len() {
		first := int(maphash.Comparable(full.seed, full.at(i).groupBlock)) & (n - 1)
		probes := (full.slotOf(&full.at(i).groupBlock)-first+n)&(n-1) + 1
		looked, most = looked+probes, max(most, probes)
	}
	require.Less(t, looked, 2*full.len())
	require.Less(t, most, 100)
	*now += 10
	f.add(f.begin(), g, hashes, 0, 1, 1)
	require.Equal(t, 3, tables)
}

// Of several calls that need another generation one makes it; the others do not wait, and remember what still fits.
func TestOneMakesTheNextGeneration(t *testing.T) {
	f, now := newTestFound(1<<20, nil)
	g := newGroupKeys([]string{"a@"})
	f.add(f.begin(), g, numberedHashes(0, 1, 32), 0, 1, 1)
	*now += 10
	made := 0
	f.newTable = func(maxBlocks int) *blockTable {
		made++
		f.add(f.begin(), g, numberedHashes(1, 1, 32), 0, 1, 1)
		return newBlockTable(maxBlocks)
	}
	f.add(f.begin(), g, numberedHashes(2, 1, 32), 0, 1, 1)
	require.Equal(t, 1, made)
	require.Equal(t, []int{1, 2}, []int{f.young.len(), f.old.len()})
}
