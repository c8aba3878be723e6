package netproto

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHashesBorrow(t *testing.T) {
	blob := []byte(hashes(3, 8) + "tail")
	h := NewHashes(blob, 8)
	require.Equal(t, 3, h.Len())
	require.Equal(t, 8, h.HashLen())
	require.Equal(t, blob[:24], h.Bytes())
	require.Same(t, &blob[8], &h.At(1)[0])
	require.Equal(t, 8, cap(h.At(1)), "append must not reach the next hash")
	require.Panics(t, func() { h.At(3) })
	require.Panics(t, func() { h.At(-1) })
	n := 0
	for i := range h.All() {
		if n++; i == 1 {
			break
		}
	}
	require.Equal(t, 2, n)
	require.Zero(t, NewHashes(blob, -1).Len())
	require.Empty(t, NewHashes(blob, 0).Bytes())
}

func TestChunks(t *testing.T) {
	h := NewHashes([]byte(hashes(7, 8)), 8)
	c, err := NewChunks(h, 4, 12) // the example: 7 hashes, two chunks, raw hashes 2 and 5
	require.NoError(t, err)
	require.Equal(t, 2, c.Len())
	require.Equal(t, 3, c.Stride())
	require.Equal(t, h.At(2), c.At(0))
	require.Equal(t, h.At(5), c.At(1))
	require.Panics(t, func() { c.At(2) })
	require.Panics(t, func() { c.At(-1) })
	for _, sizes := range [][2]int{{4, 13}, {0, 4}, {4, 0}, {-4, 4}} {
		_, err := NewChunks(h, sizes[0], sizes[1])
		require.ErrorIs(t, err, ErrBlockSize)
	}
	require.Zero(t, Chunks{}.Len())
}

func TestJoinHashes(t *testing.T) {
	h, err := JoinHashes([]byte("old"), [][]byte{[]byte("ab"), []byte("cd")})
	require.NoError(t, err)
	require.Equal(t, "abcd", string(h.Bytes()))
	require.Equal(t, 2, h.HashLen())
	h, err = JoinHashes(nil, nil)
	require.NoError(t, err)
	require.Equal(t, Hashes{}, h)
	_, err = JoinHashes(nil, [][]byte{[]byte("ab"), []byte("c")})
	require.ErrorIs(t, err, ErrUnequalHashes)
	require.ErrorContains(t, err, "hash 1 has 1 bytes, the first has 2")
}

func TestPartialHash(t *testing.T) {
	h := NewHashes([]byte("abcde"), 2)
	require.Equal(t, "abcd", string(h.Bytes()))
	require.Equal(t, "abcde", string(h.Blob()))
}
