package index

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestTableSizes pins what the byte bound computes with.
func TestTableSizes(t *testing.T) {
	require.LessOrEqual(t, int(unsafe.Sizeof(page{})), pageBytes)
	require.Equal(t, 4096, int(unsafe.Sizeof([pageCells]uint64{})))
}

// TestWorstTable checks the bound on the table's memory at every size on the way.
func TestWorstTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 3 {
		tab := newTable()
		for n := range int64(300000) {
			tab.insert(rng.Uint32(), slot(n))
			if tab.bytes() > worstTable(n+1) {
				t.Fatalf("%d bytes for %d entries, the bound says %d", tab.bytes(), n+1, worstTable(n+1))
			}
		}
	}
}

func TestTableAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	tab, want := newTable(), map[slot]uint32{}
	has := func(tag uint32, s slot) bool {
		for p := tab.page(tag); p != nil; p = p.overflow {
			for i := tag & pageMask; p.cells[i] != 0; i = (i + 1) & pageMask {
				if p.cells[i] == uint64(tag)<<32|(uint64(s)+1) {
					return true
				}
			}
		}
		return false
	}
	for n := range slot(60000) {
		tag := rng.Uint32()
		if n%7 == 0 { // crowd some pages: equal low bits, equal high bits
			tag = tag&0xFFFF0000 | 0x1FE
		}
		tab.insert(tag, n)
		want[n] = tag
		if n%3 == 0 {
			for s, tag := range want {
				tab.delete(tag, s)
				delete(want, s)
				break
			}
		}
	}
	for s, tag := range want {
		require.True(t, has(tag, s))
	}
	used := 0
	seen := map[*page]bool{}
	for _, p := range tab.directory {
		for ; p != nil && !seen[p]; p = p.overflow {
			seen[p] = true
			used += p.used
		}
	}
	require.Equal(t, len(want), used)
	require.EqualValues(t, len(seen), tab.pages)
}
