package lookup

import (
	"encoding/binary"
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

// newTestFound returns one that remembers for 10 ns, and its clock.
func newTestFound(maxBytes int64, account *MemoryAccount) (f *foundBlocks, now *int64) {
	f, now = newFoundBlocks(maxBytes, account), new(int64)
	*now = 100
	f.now = func() int64 { return *now }
	f.setKeep(10)
	return f, now
}

// A block is found for age from the time at which its call began, in its group only.
func TestFoundBlocksAge(t *testing.T) {
	f, now := newTestFound(1<<20, nil)
	hashes := numberedHashes(1, 300, 32)
	g, other := newFoundGroup([]string{"a@", "b@"}), newFoundGroup([]string{"a@", "c@"})
	require.Equal(t, g, newFoundGroup([]string{"a@", "b@"}))
	assert.NotEqual(t, g, newFoundGroup([]string{"a@b@"}))

	call := f.begin()
	*now += 3
	f.record(call, g, hashes, 3, 4, 0b1011)
	for _, age := range []int64{0, 3} {
		assert.Zero(t, f.found(g, hashes, 3, 4, ^uint64(0), age), "as old as the call")
	}
	assert.Equal(t, uint64(0b1011), f.found(g, hashes, 3, 4, ^uint64(0), 4))
	assert.Equal(t, uint64(0b10), f.found(g, hashes, 3, 4, 0b110, 4), "only those asked about")
	assert.Equal(t, uint64(0b1), f.found(g, hashes, 7, 1, 1, 4), "at another position")
	assert.Zero(t, f.found(other, hashes, 3, 4, ^uint64(0), 4))
	assert.Zero(t, f.found(g, coordinator.NewHashes(hashes.Bytes()[3*32:], 31), 0, 1, 1, 4), "a shorter hash")
	long := numberedHashes(1, 1, 64)
	f.record(f.begin(), g, long, 0, 1, 1)
	assert.Zero(t, f.found(g, long, 0, 1, 1, 4), "longer than any engine's")
	f.record(f.begin(), g, hashes, 7, 1, 1)
	*now += 7
	assert.Equal(t, uint64(0b10), f.found(g, hashes, 3, 4, ^uint64(0), 10), "renewed")
	f.record(call, g, hashes, 7, 1, 1)
	assert.Equal(t, uint64(0b10), f.found(g, hashes, 3, 4, ^uint64(0), 10), "an older call makes nothing older")
}

// Nothing outlives a drop, and no call that began before it adds anything.
func TestFoundBlocksDrop(t *testing.T) {
	for name, drop := range map[string]func(f *foundBlocks){
		"drop": (*foundBlocks).drop, "off and on": func(f *foundBlocks) { f.setKeep(0); f.setKeep(10) },
	} {
		f, _ := newTestFound(1<<20, nil)
		hashes, g := numberedHashes(1, 64, 16), newFoundGroup([]string{"a@"})
		call := f.begin()
		f.record(call, g, hashes, 0, 1, 1)
		require.NotZero(t, f.found(g, hashes, 0, 1, 1, 1))
		drop(f)
		f.record(call, g, hashes, 0, 1, 2)
		assert.Zero(t, f.found(g, hashes, 0, 1, 3, 1), name)
		f.record(f.begin(), g, hashes, 0, 1, 1)
		assert.NotZero(t, f.found(g, hashes, 0, 1, 1, 1), name)
		f.setKeep(0)
		f.record(f.begin(), g, hashes, 0, 1, 1)
		assert.Zero(t, f.found(g, hashes, 0, 1, 1, 1), "nothing is remembered")
	}
}

// Two generations are kept, each of at most half the bytes, and the account counts them.
func TestFoundBlocksAreBounded(t *testing.T) {
	const blocks = 1000
	account := NewMemoryAccount(3 * blocks * foundBlockBytes)
	f, now := newTestFound(2*blocks*foundBlockBytes, account)
	g := newFoundGroup([]string{"a@"})
	used := func() int64 { bytes, _, _ := account.Usage(); return bytes / foundBlockBytes }
	for i := range 100 {
		f.record(f.begin(), g, numberedHashes(64*i, 64, 32), 0, 1, ^uint64(0))
		f.record(f.begin(), g, numberedHashes(64*i, 64, 32), 0, 1, ^uint64(0))
		require.LessOrEqual(t, used(), int64(2*blocks))
		require.Equal(t, int64(f.young.len()+f.old.len()), used())
		if back := blocks/64 - 2; i >= back {
			require.Equal(t, ^uint64(0), f.found(g, numberedHashes(64*(i-back), 64, 32), 0, 1, ^uint64(0), 1), i)
		}
	}
	*now += 10
	f.record(f.begin(), g, numberedHashes(0, 64, 32), 0, 1, 1)
	require.LessOrEqual(t, used(), int64(1+blocks), "a generation ends with keep")
	*now += 10
	f.record(f.begin(), g, numberedHashes(0, 64, 32), 0, 1, 1)
	require.Equal(t, int64(2), used())
	f.drop()
	require.Zero(t, used())

	require.True(t, account.Reserve(3*blocks*foundBlockBytes-64*foundBlockBytes+1), "others take the rest")
	f.record(f.begin(), g, numberedHashes(0, 64, 32), 0, 1, ^uint64(0))
	require.Zero(t, f.young.len(), "a full account")
}
