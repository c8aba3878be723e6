package index

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A lookup parts from the log exactly at the key that has one other bit, wherever it is in a
// group, and whether groups are compared by digests or key by key.
func TestOneOtherBit(t *testing.T) {
	const n = 5*groupSlots + 20
	for _, hashLen := range []int{1 << 3, 20, 32, maxHashLen} {
		for _, compareKeys := range []bool{false, true} {
			for _, before := range []int{0, 10} { // keys in front of the chain in the log
				t.Run(fmt.Sprintf("bytes=%d/compare-keys=%t/before=%d", hashLen, compareKeys, before), func(t *testing.T) {
					x := mustNew(t, Config{Places: 1, Groups: [][]int{{0}}})
					x.digests = x.digests && !compareKeys
					keys := chain(1, before+n, hashLen)
					store(t, x, keys, hashLen)
					keys = keys[before*hashLen:]
					require.Equal(t, n, leading(x, keys, hashLen))
					for k := 0; k < n; k += 3 {
						bit := (k*31 + 7) % (8 * hashLen)
						keys[k*hashLen+bit/8] ^= 1 << (bit % 8)
						require.Equal(t, k, leading(x, keys, hashLen), "bit %d", bit)
						keys[k*hashLen+bit/8] ^= 1 << (bit % 8)
					}
				})
			}
		}
	}
}

// What a group is summed up to follows what happens to its entries.
func TestGroupsAreSummedUp(t *testing.T) {
	x := mustNew(t, Config{Places: 2, Groups: [][]int{{0}, {1}}, HashLen: 32})
	keys := chain(1, 3*groupSlots, 32)
	summedUp := func() (n int) {
		checkBooks(t, x)
		for _, id := range x.segments[0].groupClass {
			if id != noClass {
				n++
			}
		}
		return n
	}
	storeTwice := func(from, to, place int) {
		var w Writer
		require.NoError(t, x.Store(&w, []int{place}, keys[from*32:to*32], 32))
	}
	storeTwice(0, 3*groupSlots-1, 0)
	require.Equal(t, 2, summedUp(), "the last group lacks an entry")
	storeTwice(3*groupSlots-1, 3*groupSlots, 0)
	require.Equal(t, 3, summedUp())
	storeTwice(0, groupSlots+1, 1)
	require.Equal(t, 2, summedUp(), "the second group has two classes")
	storeTwice(groupSlots+1, 2*groupSlots, 1)
	require.Equal(t, 3, summedUp())
	evict(t, x, 0, keys[32:2*32], 32)
	require.Equal(t, 2, summedUp())
	evict(t, x, 1, keys[32:2*32], 32)
	require.Equal(t, 2, summedUp(), "an entry of the first group is gone")
	require.Equal(t, 3*groupSlots-1, countHeld(x, keys))
}

// leading returns how many leading keys of one coverage a quiet lookup finds.
func leading(x *Index, keys []byte, hashLen int) int {
	c, runs := Cursor{Quiet: true}, make([]Run, 2)
	x.Begin(&c, hashLen)
	filled, _, _ := x.Probe(&c, keys, 1, runs, true)
	if filled == 0 || runs[0].Coverage == nil {
		return 0
	}
	return runs[0].N
}

// countHeld returns how many keys of 32 bytes are found.
func countHeld(x *Index, keys []byte) (n int) {
	_, bits := probeSilent(x, keys, 32)
	for _, held := range bits {
		if held {
			n++
		}
	}
	return n
}

// checkGroups holds what the groups of a segment are summed up to against their entries.
func checkGroups(t testing.TB, x *Index, seg *segment) {
	t.Helper()
	for g, id := range seg.groupClass {
		if id == noClass {
			continue
		}
		require.Equal(t, groupSlots, runStrided(seg.class[g*groupSlots:], 1, groupSlots))
		require.Equal(t, id, seg.class[g*groupSlots])
		if x.digests {
			require.Equal(t, x.secret.Sum(seg.records(g*groupSlots, groupSlots)), seg.digests[g])
		}
	}
}
