package index_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
)

// TestCollidingLengths has keys that begin alike and collide, and differ in length
// only: an index never takes one for the other.
func TestCollidingLengths(t *testing.T) {
	const n = 100
	x := newIndex(t, 0, 0)
	index.SetHash(x, func([]byte) uint64 { return 1 })
	short, long := numbered(0, n, 8, 4, 0), make([]byte, n*16)
	for i := range n {
		copy(long[i*16:], short[i*8:i*8+8])
	}
	storeKeys(t, x, long, 16)
	require.Zero(t, lookUp(x, short, 8))
	var w index.Writer
	require.ErrorIs(t, x.Store(&w, []int{0}, short, 8), index.ErrOtherHashLen)
	_, err := x.Evict(0, short, 8)
	require.ErrorIs(t, err, index.ErrOtherHashLen)
	require.EqualValues(t, n, x.Stats().Entries)
	require.Equal(t, n, lookUp(x, long, 16))
	evicted, err := x.Evict(0, long, 16)
	require.NoError(t, err)
	require.Equal(t, n, evicted)
	require.Zero(t, lookUp(x, long, 16))
}
