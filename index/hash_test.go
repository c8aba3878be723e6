package index_test

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
)

var seed = maphash.MakeSeed()

// TestCollidingHashes replaces the hash by one that an adversary would wish for.
// It may be slow then, not wrong. That keys cannot be chosen so is what the seed is
// for.
func TestCollidingHashes(t *testing.T) {
	const hashLen = 16
	n := 1600 // all fit one page
	if index.RaceEnabled {
		n = 800
	}
	for name, hash := range map[string]func([]byte) uint64{
		"constant":             func([]byte) uint64 { return 0x0123456789ABCDEF },
		"zero":                 func([]byte) uint64 { return 0 },
		"ones":                 func([]byte) uint64 { return ^uint64(0) },
		"equal low 32 bits":    func(b []byte) uint64 { return maphash.Bytes(seed, b)<<32 | 0xABCD },
		"equal high 32 bits":   func(b []byte) uint64 { return maphash.Bytes(seed, b)>>32 | 0xABCD<<32 },
		"equal middle 32 bits": func(b []byte) uint64 { return maphash.Bytes(seed, b) &^ 0x0000FFFFFFFF0000 },
		"a counter": func(b []byte) uint64 {
			return binary.BigEndian.Uint64(b) + binary.BigEndian.Uint64(b[8:])
		},
	} {
		for _, offset := range []int{0, hashLen - 4} {
			t.Run(fmt.Sprintf("%s/offset=%d", name, offset), func(t *testing.T) {
				x := newIndex(t, 0, int64(3*n/2))
				index.SetHash(x, hash)
				keys, others := numbered(0, n, hashLen, offset, 0), numbered(n, n, hashLen, offset, 0)
				storeKeys(t, x, keys, hashLen)
				require.Equal(t, n, lookUp(x, keys, hashLen))
				require.Zero(t, lookUp(x, others, hashLen))
				evicted, err := x.Evict(0, keys[:len(keys)/4], hashLen)
				require.NoError(t, err)
				require.Equal(t, n/4, evicted)
				require.Equal(t, n-n/4, lookUp(x, keys, hashLen))
				storeKeys(t, x, others, hashLen) // a quarter of n makes way
				require.Equal(t, n, lookUp(x, others, hashLen))
				require.Equal(t, n/2, lookUp(x, keys, hashLen))
				x.Reset()
				require.Zero(t, lookUp(x, others, hashLen))
				storeKeys(t, x, others, hashLen)
				require.Equal(t, n, lookUp(x, others, hashLen))
			})
		}
	}
}

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
