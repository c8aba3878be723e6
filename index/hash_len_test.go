package index

import (
	"fmt"
	"testing"

	"github.com/hitline/hitline/internal/fielderror"
	"github.com/stretchr/testify/require"
)

// requireRefused stores, evicts and looks up hashes of a length that is not the index's.
func requireRefused(t *testing.T, x *Index, hashLen int) {
	t.Helper()
	const n = 4000
	before, keys := x.Stats(), chain(1, n, hashLen)
	var w Writer
	err := x.Store(&w, []int{0}, keys, hashLen)
	require.ErrorIs(t, err, ErrOtherHashLen)
	require.ErrorContains(t, err, fmt.Sprintf("hash_len is %d, but the pool holds hashes of %d bytes", hashLen, x.hashLen))
	_, err = x.Evict(0, keys, hashLen)
	require.ErrorIs(t, err, ErrOtherHashLen)
	before.Refused += 2
	require.Equal(t, before, x.Stats())

	for _, stop := range []bool{false, true} {
		var c Cursor
		var runs [8]Run
		x.Begin(&c, hashLen)
		filled, covered, clean := x.Probe(&c, keys, 1, runs[:], stop)
		require.True(t, clean)
		want := n
		if stop {
			want = 1
		}
		require.Equal(t, []int{1, want, want}, []int{filled, covered, runs[0].N})
		require.Nil(t, runs[0].Coverage)
	}
}

// TestHashLengthIsDecided asks who decides: Config, or else the first store after New or
// Reset. Lookups and evicts do not.
func TestHashLengthIsDecided(t *testing.T) {
	for _, hashLen := range []int{-1, 65} {
		_, err := New(Config{Places: 1, HashLen: hashLen})
		require.ErrorIs(t, err, fielderror.ErrConfig)
	}
	keys := chain(1, 10, 32)
	x := mustNew(t, Config{Places: 1, Groups: [][]int{{0}}, HashLen: 32})
	requireRefused(t, x, 16)
	store(t, x, keys, 32)
	x.Reset()
	requireRefused(t, x, 16)
	store(t, x, keys, 32)

	x = mustNew(t, onePlace(0))
	leading, _ := probe(x, keys, 16, 10, false)
	require.Zero(t, leading)
	n, err := x.Evict(0, keys, 16)
	require.NoError(t, err, "there is nothing to evict, of any length")
	require.Zero(t, n)
	var w Writer
	require.NoError(t, x.Store(&w, []int{0}, keys, 32))
	requireRefused(t, x, 16)
	x.Reset()
	require.NoError(t, x.Store(&w, []int{0}, keys, 16), "the Writer of another length begins a new chain")
	requireRefused(t, x, 32)
	checkBooks(t, x)
}
