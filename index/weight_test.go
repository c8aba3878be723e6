package index

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// What one message costs others: how much it evicts of an index that is filled to its byte bound.

// Stores evict at most maxEvictedPerKey entries for each of their keys, one whose slot it takes and one more
// while the slack of free slots is made. A run of stores evicts maxEvictedExtra more, as rows go as a whole.
const (
	maxEvictedPerKey = 2
	maxEvictedExtra  = 256
)

// fullIndex returns an index that is filled to its byte bound with long chains, all at
// place 0, and the last of their keys, n of them.
func fullIndex(t testing.TB, maxBytes int64, n int) (*Index, *rand.Rand, []byte) {
	x := mustNew(t, manyPlaces(maxBytes, 32))
	rng := rand.NewChaCha8([32]byte{1})
	chain := make([]byte, 1000*32)
	var last []byte
	for !x.evicting {
		_, _ = rng.Read(chain)
		store(t, x, chain, 32)
		last = append(last, chain...)
	}
	return x, rand.New(rng), last[max(len(last)-n*32, 0):]
}

// message is one store or evict; it returns how many keys it has.
type message func(x *Index, w *Writer, rng *rand.Rand, known []byte) (n int)

func randomKey(rng *rand.Rand) []byte {
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(rng.Uint32())
	}
	return key
}

func oneOf(rng *rand.Rand, known []byte) []byte {
	i := rng.IntN(len(known) / 32)
	return cut(known, i, i+1)
}

func someOf(rng *rand.Rand, known []byte, n int) (keys []byte) {
	for range n {
		keys = append(keys, oneOf(rng, known)...)
	}
	return keys
}

// lookUpSome looks up a few keys.
func lookUpSome(x *Index, rng *rand.Rand, known []byte) {
	i := rng.IntN(len(known)/32 - 4)
	probe(x, cut(known, i, i+4), 32, 4, true)
}

var messages = map[string]message{
	"new keys, one at a time": func(x *Index, w *Writer, rng *rand.Rand, _ []byte) int {
		_ = x.Store(w, []int{0}, randomKey(rng), 32)
		return 1
	},
	"new keys at any place": func(x *Index, w *Writer, rng *rand.Rand, _ []byte) int {
		_ = x.Store(w, []int{rng.IntN(32)}, randomKey(rng), 32)
		return 1
	},
	"known keys at any place": func(x *Index, w *Writer, rng *rand.Rand, known []byte) int {
		_ = x.Store(w, []int{rng.IntN(32)}, oneOf(rng, known), 32)
		return 1
	},
	"keys of other lengths": func(x *Index, w *Writer, rng *rand.Rand, _ []byte) int {
		n := 1 + rng.IntN(64)
		_ = x.Store(w, []int{0}, make([]byte, n), n)
		return 1
	},
	"known keys in any order": func(x *Index, w *Writer, rng *rand.Rand, known []byte) int {
		_ = x.Store(w, []int{0}, someOf(rng, known, batchKeys), 32)
		return batchKeys
	},
	"known and new keys in any order": func(x *Index, w *Writer, rng *rand.Rand, known []byte) int {
		keys := someOf(rng, known, batchKeys/2)
		for range batchKeys / 2 {
			keys = append(keys, randomKey(rng)...)
		}
		_ = x.Store(w, []int{rng.IntN(2)}, keys, 32)
		return batchKeys
	},
	"lookups and new keys": func(x *Index, w *Writer, rng *rand.Rand, known []byte) int {
		lookUpSome(x, rng, known)
		lookUpSome(x, rng, known)
		_ = x.Store(w, []int{0}, randomKey(rng), 32)
		return 1
	},
	"holes and new keys": func(x *Index, w *Writer, rng *rand.Rand, known []byte) int {
		_, _ = x.Evict(0, oneOf(rng, known), 32)
		_ = x.Store(w, []int{0}, randomKey(rng), 32)
		return 2 // one evicted on request
	},
	"holes": func(x *Index, w *Writer, rng *rand.Rand, known []byte) int {
		_, _ = x.Evict(0, oneOf(rng, known), 32)
		return 1
	},
}

// TestStoresEvictLittle sends many messages of each kind to a full index. They evict at most maxEvictedPerKey
// entries for each key, and maxEvictedExtra in all. The bounds are the same for a small index and a large one.
func TestStoresEvictLittle(t *testing.T) {
	rounds, sizes := 20_000, []int64{4 << 20, 24 << 20}
	if raceEnabled || testing.Short() {
		rounds, sizes = 2000, sizes[:1]
	}
	for name, send := range messages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range sizes {
				x, rng, known := fullIndex(t, size, 1<<20)
				keys := 0
				evicted := x.Stats().Evicted
				for range rounds {
					var w Writer
					n := send(x, &w, rng, known)
					keys += n
					require.LessOrEqual(t, x.Stats().Evicted-evicted, int64(maxEvictedPerKey*keys+maxEvictedExtra))
				}
				st := x.Stats()
				t.Logf("%d MiB: %d entries, %d evicted by %d keys", size>>20, st.Entries, st.Evicted-evicted, keys)
				require.LessOrEqual(t, st.Bytes, size)
				checkBooks(t, x)
				key := randomKey(rng)
				store(t, x, key, 32)
				leading, _ := probeSilent(x, key, 32)
				require.Equal(t, 1, leading, "a key can still be stored")
			}
		})
	}
}

// TestRunsOfStoresEvictLittle stores a few keys at a time while the slack of a full index is made: in no run of
// stores more is evicted than two entries a key and maxEvictedExtra.
func TestRunsOfStoresEvictLittle(t *testing.T) {
	for _, size := range []int{1, 5, 6, 9, 13, 64} {
		x := mustNew(t, Config{MaxBytes: 4 << 20, Places: 1, Groups: [][]int{{0}}, HashLen: 32})
		keys := drawnKeys(byte(size), 1<<17)
		excess, stored := int64(0), 0 // of the run of stores that has evicted most
		for i := 0; i+size <= 1<<17; i += size {
			before := x.Stats().Evicted
			storeAt(t, x, 0, cut(keys, i, i+size))
			excess = max(excess, 0) + x.Stats().Evicted - before - int64(maxEvictedPerKey*size)
			require.LessOrEqual(t, excess, int64(maxEvictedExtra), "%d keys at a time", size)
			stored += size
		}
		require.Greater(t, int64(stored), 2*x.Stats().Entries, "it never was full")
	}
}

// TestSharedRowsAreEvicted stores one known key of each row and as many new ones: what shares a row with a key of
// the store makes room for it.
func TestSharedRowsAreEvicted(t *testing.T) {
	const n = 1000
	x := mustNew(t, onePlace(n))
	keys, fresh := drawnKeys(1, n), drawnKeys(2, 100)
	storeAt(t, x, 0, keys)
	var all []byte
	for i := 0; i < n; i += rowSlots {
		all = append(all, cut(keys, i, i+1)...)
	}
	all = append(all, fresh...)
	var w Writer
	require.NoError(t, x.Store(&w, []int{0}, all, 32))
	require.Equal(t, len(all)/32, w.Stored())
	require.Equal(t, len(all)/32, len(held(x, all)))
	for _, set := range held(x, all) {
		require.NotNil(t, set)
	}
	checkBooks(t, x)
}

// TestSlowStore goes on with a store after everything else was used: that makes room for it nevertheless.
func TestSlowStore(t *testing.T) {
	const n = 1000
	x := mustNew(t, onePlace(n))
	old, keys := drawnKeys(1, n), drawnKeys(2, 200)
	storeAt(t, x, 0, old)
	var w Writer
	require.NoError(t, x.Store(&w, []int{0}, cut(keys, 0, 10), 32))
	probe(x, old, 32, n, false)
	for !x.applyTouches(touchBatch) {
		continue
	}
	require.NoError(t, x.Store(&w, []int{0}, cut(keys, 10, 200), 32))
	require.Equal(t, 200, w.Stored())
	leading, _ := probeSilent(x, keys, 32)
	require.Equal(t, 200, leading)
	checkBooks(t, x)
}
