package index

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A bucket is one cache line. Segments have no padding: of 64 bits, four are one.
var (
	_ [64]byte                            = [unsafe.Sizeof(bucket{})]byte{}
	_ [2 * unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(segment{})]byte{}
)

// TestWorstTable checks the bound on the table's memory at every size on the way.
func TestWorstTable(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds under the race detector and emulators, and has one goroutine")
	}
	for seed := range uint64(3) {
		x := mustNew(t, onePlace(0))
		keys := chain(seed, 300_000, 8)
		for n := 0; n < 300_000; n += 50 {
			store(t, x, keys[n*8:(n+50)*8], 8)
			if have, most := x.table.bytes(), worstTable(int64(n+50)); have > most {
				t.Fatalf("%d bytes for %d entries, the bound says %d", have, n+50, most)
			}
		}
	}
}

func TestPageAgainstMap(t *testing.T) {
	SkipSlow(t)
	rng := rand.New(rand.NewPCG(2, 2))
	tab, want := newTable(), map[slot]uint64{}
	has := func(h uint64, s slot) (found bool) {
		tab.cells(h, func(have slot) bool {
			found = have == s
			return found
		})
		return found
	}
	for n := range slot(60_000) {
		h := rng.Uint64()
		if n%3 == 0 { // crowd a bucket, and tags with it
			h &= 0xFF
		}
		if len(want) < pageCells {
			tab.insert(tab.bucket(h), h, n)
			want[n] = h
		}
		for s, h := range want {
			if rng.IntN(2) == 0 {
				tab.replace(h, s, s+1_000_000)
				delete(want, s)
				want[s+1_000_000] = h
				s += 1_000_000
			}
			if len(want) > pageCells-20 {
				tab.replace(h, s, noSlot)
				delete(want, s)
				require.False(t, has(h, s))
			}
			break
		}
	}
	for s, h := range want {
		require.True(t, has(h, s))
		tab.replace(h, s, noSlot)
	}
	require.Zero(t, tab.leaves[0].used)
	for i := range tab.directory[0].buckets {
		bk := &tab.directory[0].buckets[i]
		require.Zero(t, bk.passed)
		require.Zero(t, bk.state)
		require.Zero(t, bk.slots)
	}
}

// checkTable checks every cell against the hash of its key, and the counts of cells.
func checkTable(t testing.TB, x *Index) {
	tab := x.table
	pages, entries := int64(0), int64(0)
	for i, p := range tab.directory {
		if i > 0 && p == tab.directory[i-1] {
			continue
		}
		pages++
		used, passed := 0, [pageBuckets]uint16{}
		for b := range p.buckets {
			bk := &p.buckets[b]
			used += bk.used()
			for cell, s := range bk.slots {
				away := bk.state>>cell&1 == 1
				if cell >= bk.used() {
					if away || s != 0 { // not require.False: of millions of cells it would take most of the time
						require.Failf(t, "a free cell is in use", "cell %d, %d in use", cell, bk.used())
					}
					continue
				}
				seg, j := x.at(slot(s - 1))
				h := x.hash(seg.key(j))
				if tab.page(h) != p || bk.tags[cell] != bk.tag(h) || away != (home(h) != uint(b)) {
					require.Failf(t, "a cell is not where its hash belongs", "%d %x", b, h)
				}
				for at := home(h); at != uint(b); at = (at + 1) % pageBuckets {
					passed[at]++
				}
			}
		}
		for b := range p.buckets {
			require.True(t, passed[b] == p.buckets[b].passed)
		}
		require.EqualValues(t, used, tab.leaves[i].used)
		entries += int64(used)
	}
	require.EqualValues(t, x.entries, entries, "cells of the table")
	require.Equal(t, pages, tab.pages)
}

// TestSplitsBeyondWindows splits pages by more bits than the tags of two windows have, of which
// most are the same for all keys. So some hundred keys do, of which buckets are full.
func TestSplitsBeyondWindows(t *testing.T) {
	const depth = 2*tagWindow + 1
	x := mustNew(t, onePlace(0))
	hasher := newHasher()
	x.badHash = func(key []byte) uint64 {
		const same = 0b0011_1101_1011_1110 << 48
		h := hasher.sum(key)
		return h&^same&^(3<<22) | 0xA5A5<<48&same // to a quarter of the buckets
	}
	keys := chain(1, 600, 32)
	store(t, x, keys, 32)
	for i := range 600 {
		h := x.hash(cut(keys, i, i+1))
		for 64-x.table.shift-uint(x.table.leaf(h).bits) < depth {
			x.split(h)
		}
		if i%150 == 0 {
			checkTable(t, x)
		}
	}
	leading, _ := probe(x, keys, 32, 100, true)
	require.Equal(t, 600, leading)
	require.EqualValues(t, depth, 64-x.table.shift)
	require.Greater(t, x.table.pages, int64(100), "most of those by the bits that differ")
	checkBooks(t, x)
}

// TestSplitsOfABatch fills 64 pages alike and stores a batch of one key for each of them.
func TestSplitsOfABatch(t *testing.T) {
	const pages = 64
	x := mustNew(t, onePlace(0))
	x.badHash = binary.BigEndian.Uint64 // of the key itself
	rng := rand.New(rand.NewPCG(1, 2))
	round := func() (keys []byte) {
		for p := range uint64(pages) {
			keys = binary.BigEndian.AppendUint64(keys, p<<58|rng.Uint64()>>6)
		}
		return keys
	}
	most, splits := 0, 0
	for range pageFull * 3 / 2 {
		keys := round()
		store(t, x, keys, 8)
		most, splits = max(most, x.splits), splits+x.splits
		leading, _ := probeSilent(x, keys, 8)
		require.Equal(t, pages, leading)
	}
	require.Equal(t, batchSplits, most)
	require.Greater(t, splits, 2*pages-10, "all pages were split")
	checkBooks(t, x)
}
