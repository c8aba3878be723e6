package index_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
)

// storeNumbered stores n random keys as blocks from number on.
func (f *filler) storeNumbered(t *testing.T, x *index.Index, number uint32, n int) {
	_, _ = f.Read(f.keys[:n*f.hashLen])
	var w index.Writer
	w.Number(number)
	require.NoError(t, x.Store(&w, []int{0}, f.keys[:n*f.hashLen], f.hashLen))
}

// TestBytesOfLinks stores so many short chains that their heads take all the room
// there is, and asks whether an entry of 32 bytes takes at most 56, however full
// the table's pages are: as full as at 6, 8.5 and 10 million, for the table doubles.
func TestBytesOfLinks(t *testing.T) {
	skipUnlessMeasurable(t)
	sizes := []int{6_000_000 / 4, 8_500_000 / 4, 10_000_000 / 4}
	if testing.Short() {
		sizes = []int{6_000_000 / 16, 8_500_000 / 16, 10_000_000 / 16}
	}
	const most, chain = 56, 16
	f := newFiller(32, chain)
	before := used()
	x := newIndex(t, 1<<30, 0)
	stored := 0
	for _, size := range sizes {
		for ; stored < size; stored += chain {
			f.storeNumbered(t, x, uint32(stored%7), chain)
		}
		st := x.Stats()
		t.Logf("%d entries: %.1f bytes each", st.Entries, float64(st.Bytes)/float64(st.Entries))
		require.LessOrEqual(t, float64(st.Bytes)/float64(st.Entries), float64(most))
	}
	requireTrueBytes(t, x, before)
	runtime.KeepAlive(f)
}

// TestBytesOfLinksAtTheBound stores three times what fits, in chains of all sizes
// whose numbers do not go on from each other.
func TestBytesOfLinksAtTheBound(t *testing.T) {
	skipUnlessMeasurable(t)
	const bound = 8 << 20
	f := newFiller(32, 8192)
	before := used()
	x := newIndex(t, bound, 0)
	sizes := []int{1, 8192, 1, 16, 1, 300, 16, 16}
	for stored, i := 0, 0; stored < 3*bound/46; i++ {
		n := sizes[i%len(sizes)]
		f.storeNumbered(t, x, uint32(i%5), n)
		stored += n
		if n == 16 {
			_, err := x.Evict(0, f.keys[5*32:9*32], 32)
			require.NoError(t, err)
		}
		require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
	}
	requireTrueBytes(t, x, before)
	runtime.KeepAlive(f)
}
