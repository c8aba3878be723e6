package index_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/index"
)

// Keys that a hostile client might choose. Those that need a hash to collide are
// in hash_test.go.

func newIndex(t testing.TB, maxBytes, maxEntries int64) *index.Index {
	x, err := index.New(index.Config{MaxBytes: maxBytes, MaxEntries: maxEntries, Places: 1, Groups: [][]int{{0}}})
	require.NoError(t, err)
	return x
}

func storeKeys(t testing.TB, x *index.Index, keys []byte, hashLen int) {
	var w index.Writer
	if err := x.Store(&w, []int{0}, keys, hashLen); err != nil {
		t.Fatal(err)
	}
}

// lookUp returns how many of the keys are present, in runs of any length.
func lookUp(x *index.Index, keys []byte, hashLen int) (present int) {
	var c index.Cursor
	var runs [64]index.Run
	x.Begin(&c, hashLen)
	for len(keys) > 0 {
		filled, covered, _ := x.Probe(&c, keys, 1, runs[:], false)
		for _, r := range runs[:filled] {
			if r.Coverage != nil {
				present += r.N
			}
		}
		keys = keys[covered*hashLen:]
	}
	x.End(&c)
	return present
}

// numbered returns keys of hashLen bytes, all of them fill but for the number at
// offset.
func numbered(from, n, hashLen, offset int, fill byte) []byte {
	keys := bytes.Repeat([]byte{fill}, n*hashLen)
	for i := range n {
		binary.BigEndian.PutUint32(keys[i*hashLen+offset:], uint32(from+i))
	}
	return keys
}

// TestAlikeKeys stores keys that differ in four bytes only and looks up those and
// as many others that differ from them no more.
func TestAlikeKeys(t *testing.T) {
	index.SkipSlow(t)
	n := 20000
	if index.RaceEnabled {
		n = 1000
	}
	for _, hashLen := range []int{4, 8, 32, 33, 64} {
		for _, offset := range slices.Compact([]int{0, (hashLen - 4) / 2, hashLen - 4}) {
			for _, fill := range []byte{0, 0xFF} {
				t.Run(fmt.Sprintf("len=%d/offset=%d/fill=%x", hashLen, offset, fill), func(t *testing.T) {
					x := newIndex(t, 0, 0)
					keys, others := numbered(0, n, hashLen, offset, fill), numbered(n, n, hashLen, offset, fill)
					storeKeys(t, x, keys, hashLen)
					require.Equal(t, n, lookUp(x, keys, hashLen))
					require.Zero(t, lookUp(x, others, hashLen))
					for i := 0; i < len(keys); i += 2 * hashLen { // every second goes
						if evicted, err := x.Evict(0, keys[i:i+hashLen], hashLen); err != nil || evicted != 1 {
							t.Fatalf("%d evicted, error %v", evicted, err)
						}
					}
					require.Equal(t, n/2, lookUp(x, keys, hashLen))
					storeKeys(t, x, others, hashLen) // into the gaps
					require.Equal(t, n/2, lookUp(x, keys, hashLen))
					require.Equal(t, n, lookUp(x, others, hashLen))
				})
			}
		}
	}
}

// TestOneKeyAMillionTimes looks up the same keys over and over in one lookup, which
// must not take the index beyond its bound.
func TestOneKeyAMillionTimes(t *testing.T) {
	index.SkipSlow(t)
	const hashLen = 8
	n := 1 << 20
	if index.RaceEnabled {
		n = 1 << 10
	}
	three := numbered(0, 3, hashLen, 0, 7)
	for name, turn := range map[string][]byte{
		"one":     three[:hashLen],
		"two":     append(bytes.Clone(three[2*hashLen:]), three[:hashLen]...),
		"forward": three,
	} {
		t.Run(name, func(t *testing.T) {
			keys := bytes.Repeat(turn, n*hashLen/len(turn))
			x := newIndex(t, index.MinMaxBytes, 0)
			require.Zero(t, lookUp(x, keys, hashLen))
			storeKeys(t, x, three, hashLen)
			for range 3 {
				require.Equal(t, len(keys)/hashLen, lookUp(x, keys, hashLen))
			}
			require.LessOrEqual(t, x.Stats().Bytes, int64(index.MinMaxBytes), "after lookups")
			storeKeys(t, x, keys, hashLen)
			require.EqualValues(t, 3, x.Stats().Entries)
			require.LessOrEqual(t, x.Stats().Bytes, int64(index.MinMaxBytes), "after a store")
			evicted, err := x.Evict(0, keys, hashLen)
			require.NoError(t, err)
			require.Equal(t, len(turn)/hashLen, evicted)
		})
	}
}
