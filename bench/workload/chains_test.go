package workload

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// split returns the hashes of a chain one by one.
func split(hashes []byte) []string {
	var all []string
	for h := range slices.Chunk(hashes, HashLen) {
		all = append(all, string(h))
	}
	return all
}

// The chains exceed a cache of so many bytes, and make so many entries.
func TestNumChains(t *testing.T) {
	for _, test := range []struct {
		hashes, entries int
		bytes           int64
		want            int
	}{
		{131_072, 0, 64 << 20, 20},
		{8192, 0, 64 << 20, 260}, // 256 would only fill it
		{64, 1, 64 << 20, 32_770},
		{1, 1, 64 << 20, 2_097_160},
		{64, 1, 0, 20},
		{1, 101, 0, 110},
		{100, 2001, 0, 30},
	} {
		got := NumChains(test.hashes, test.entries, test.bytes)
		assert.Equal(t, test.want, got, "%+v", test)
		assert.Greater(t, int64(HashLen*test.hashes*got), test.bytes)
	}
}

// Each lookup that misses has a hash of its own at its block, and does not come back to the chain
// that was stored.
func TestChains(t *testing.T) {
	o := ChainOptions{Chains: 20, Hashes: 30, BlockSize: 16, Seed: 1}
	whole, c := NewChains(o), NewChains(o)
	c.Cut(0.9)
	require.Equal(t, []int{20, 30, 600}, []int{c.Len(), c.Hashes(), c.Entries()})
	absent, asked := map[string]bool{}, map[int]int{}
	for n := range 3 * c.Len() { // three rotations
		l := c.Lookup(n)
		asked[l.Chain]++
		stored, sent := split(whole.Chain(l.Chain)), split(c.Put(l))
		assert.Equal(t, sent, split(c.Chain(l.Chain)))
		block := 0
		for block < len(stored) && stored[block] == sent[block] {
			block++
		}
		assert.Equal(t, block, l.Stored)
		assert.Equal(t, block == 30, c.Hits(l))
		assert.EqualValues(t, block*16, c.Want(l))
		if block == 30 {
			continue
		}
		for i := block + 1; i < 30; i++ {
			assert.NotEqual(t, stored[i], sent[i], "a chain does not come back")
		}
		assert.False(t, absent[sent[block]], "an absent hash is asked for twice")
		absent[sent[block]] = true
	}
	assert.Len(t, absent, 3*2)
	assert.Len(t, asked, c.Len())
	for chain, times := range asked {
		assert.Equal(t, 3, times, chain)
	}
}

func TestChainsHitShare(t *testing.T) {
	for share, want := range map[float64]int{1: 0, 0: 20, 0.9: 2, 0.99: 1, 0.5: 10} {
		c := NewChains(ChainOptions{Chains: 20, Hashes: 10, BlockSize: 1})
		c.Cut(share)
		misses := 0
		for n := range c.Len() {
			if !c.Hits(c.Lookup(n)) {
				misses++
			}
		}
		assert.Equal(t, want, misses, "%v", share)
	}
}

// The seed decides what is asked, and in which order.
func TestChainsSeed(t *testing.T) {
	sent := func(seed Seed, hashes int) (stored, sent []byte, order []int) {
		c := NewChains(ChainOptions{Chains: 20, Hashes: hashes, BlockSize: 16, Seed: seed})
		stored = slices.Clone(c.hashes)
		c.Cut(0.5)
		for n := range 2 * c.Len() {
			sent = append(sent, c.Put(c.Lookup(n))...)
			order = append(order, c.Lookup(n).Chain)
		}
		return stored, sent, order
	}
	stored, asked, order := sent(7, 30)
	againStored, again, againOrder := sent(7, 30)
	assert.Equal(t, stored, againStored)
	assert.Equal(t, asked, again)
	assert.Equal(t, order, againOrder)
	otherStored, other, otherOrder := sent(8, 30)
	assert.NotEqual(t, stored, otherStored)
	assert.NotEqual(t, asked, other)
	assert.NotEqual(t, order, otherOrder)
	longer, _, _ := sent(7, 31)
	assert.NotContains(t, string(longer), string(stored[:HashLen]), "chains of other lengths have other hashes")
}

func TestPutHash(t *testing.T) {
	var whole, other [HashLen]byte
	seen := map[[HashLen]byte]bool{}
	for _, seed := range []Seed{0, 1, 1 << 40} {
		for segment := range uint64(20) {
			for block := range 20 {
				seed.PutHash(whole[:], segment, block)
				seen[whole] = true
			}
		}
	}
	assert.Len(t, seen, 3*20*20)
	short := make([]byte, 8)
	Seed(3).PutHash(whole[:], 4, 5)
	Seed(3).PutHash(short, 4, 5)
	Seed(3).PutHash(other[:], 4, 5)
	assert.Equal(t, whole, other)
	assert.Equal(t, whole[HashLen-8:], short, "the last bytes")
}
