package coordinator

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHashesBorrow(t *testing.T) {
	blob := []byte("aaaaaaaabbbbbbbbcccccccctail")
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

func TestKeyIndex(t *testing.T) {
	require.Equal(t, []int{0, 1}, []int{KeyIndex(0, 1), KeyIndex(1, 1)})
	require.Equal(t, []int{2, 5}, []int{KeyIndex(0, 3), KeyIndex(1, 3)})
}

func TestPartialHash(t *testing.T) {
	h := NewHashes([]byte("abcde"), 2)
	require.Equal(t, "abcd", string(h.Bytes()))
	require.Equal(t, "abcde", string(h.Blob()))
}
