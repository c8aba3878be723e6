package index

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// What one message costs others: how much it evicts and how much work it makes, of an
// index that is filled to its byte bound.

// Stores evict at most maxEvictedPerKey entries for each of their keys, one whose slot it takes and one more
// while the slack of free slots is made. A run of stores evicts maxEvictedExtra more, as rows go as a whole.
const (
	maxEvictedPerKey = 2
	maxEvictedExtra  = 256
)

// maxWorkPerBatch and maxWorkPerKey bound the work of one store, whatever the size of the index, while no lookup
// waits to be applied: two pages split and a huge page unmapped; for each key two rows looked for in maxLooks
// segments, two entries evicted and a class made.
const (
	// maxSplits splits the pages of a batch, the last one with new tags.
	maxSplits       = batchSplits*workPerSplit + ((batchSplits-1)*maxAway+pageCells)*workPerRehash
	maxWorkPerBatch = maxSplits + workPerRelease + workPerCall + 2*keepIdle*workPerClass + 2*maxLooks*workPerLook
	maxWorkPerKey   = workPerStored + 2*maxLooks*workPerLook + (maxEvictedPerKey+rowSlots)*workPerEvicted + 3*workPerClass
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
// entries for each key, and maxEvictedExtra in all. Each makes bounded work. The bounds are the same for a small index and a large one.
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
				maxWork, keys := 0, 0
				evicted := x.Stats().Evicted
				for range rounds {
					var w Writer
					n := send(x, &w, rng, known)
					keys += n
					require.LessOrEqual(t, x.Stats().Evicted-evicted, int64(maxEvictedPerKey*keys+maxEvictedExtra))
					if x.touched == len(x.touching) {
						require.LessOrEqual(t, w.Work(), maxWorkPerBatch+n*maxWorkPerKey)
					}
					maxWork = max(maxWork, w.Work())
				}
				st := x.Stats()
				t.Logf("%d MiB: %d entries, %d evicted by %d keys; work up to %d", size>>20, st.Entries, st.Evicted-evicted, keys, maxWork)
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
