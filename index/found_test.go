package index

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Found tells the keys that a lookup was asked for and has found, and no others.
func TestFound(t *testing.T) {
	const n, hashLen = 6000, 8
	keys := chain(1, n, hashLen)
	key := func(i int) []byte { return keys[i*hashLen : (i+1)*hashLen] }
	for _, tc := range []struct {
		name          string
		stride, asked int // keys of the log
		quiet         bool
	}{
		{"every key", 1, n - 100, false},
		{"every third key", 3, n - 90, false},
		{"a quiet lookup", 3, n - 90, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := mustNew(t, onePlace(0))
			store(t, x, keys, hashLen)
			c := Cursor{Quiet: tc.quiet, Remember: tc.quiet}
			var runs [64]Run
			x.Begin(&c, hashLen)
			_, _, clean := x.Probe(&c, keys[(tc.stride-1)*hashLen:tc.asked*hashLen], tc.stride, runs[:], false)
			require.True(t, clean)
			for i := range n {
				asked := i < tc.asked && (i+1)%tc.stride == 0
				require.Equal(t, asked, x.Found(&c, key(i)) != nil, "key %d", i)
			}
			require.Nil(t, x.Found(&c, chain(2, 1, hashLen)[:hashLen]), "not stored")
			evict(t, x, 0, key(n-1), hashLen)
			require.Nil(t, x.Found(&c, key(tc.stride-1)), "an entry has gone since")
		})
	}
}

// Keys that are found one by one, in any order, are told apart from their neighbors.
func TestFoundInPieces(t *testing.T) {
	const n, hashLen = 400, 8
	x := mustNew(t, onePlace(0))
	keys := chain(1, n, hashLen)
	store(t, x, keys, hashLen)
	key := func(i int) []byte { return keys[i*hashLen : (i+1)*hashLen] }
	var c Cursor
	var runs [64]Run
	x.Begin(&c, hashLen)
	for i := n - 1; i >= 0; i -= 2 {
		x.Probe(&c, key(i), 1, runs[:], false)
	}
	for i := range n {
		require.Equal(t, i%2 == 1, x.Found(&c, key(i)) != nil, "key %d", i)
	}
}
