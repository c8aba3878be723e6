package index

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// What one message costs others: how much it evicts and how much work it makes, of an
// index that is filled to its byte bound.

// mostEvictedPerKey is how many entries a store evicts at most for each of its keys: one
// whose slot it takes, and one more while the slack of free slots is made.
const mostEvictedPerKey = 2

// mostWorkPerBatch and mostWorkPerKey bound the work of one store, whatever the size of
// the index, while no lookup waits to be applied: two pages split and a huge page unmapped;
// for each key four spans looked for among joinWindow each, two entries evicted and a
// class made.
const (
	// mostSplits splits the pages of a batch, the last one with new tags.
	mostSplits       = batchSplits*workPerSplit + ((batchSplits-1)*mostAway+pageCells)*workPerRehash
	mostWorkPerBatch = mostSplits + workPerRelease + workPerCall + looksPerBatch*workPerSpan + 2*keepIdle*workPerClass
	mostWorkPerKey   = workPerStored + (looksPerKey+joinWindow+4)*workPerSpan + mostEvictedPerKey*workPerEvicted + 3*workPerClass
)

// fullIndex returns an index that is filled to its byte bound with long chains, all at
// place 0, and has no memory for more spans, and the last of their keys, n of them.
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
	for x.room(0, 0, 1) {
		x.maxBytes -= 1 << 10
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

func randomKeys(rng *rand.Rand) (keys []byte) {
	for range 4 * batchKeys {
		keys = append(keys, randomKey(rng)...)
	}
	return keys
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

// lookUpSome looks up a few keys, as many as split a span.
func lookUpSome(x *Index, rng *rand.Rand, known []byte) {
	i := rng.IntN(len(known)/32 - leastUse)
	probe(x, cut(known, i, i+leastUse), 32, leastUse, true)
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
	"lookups that split spans": func(x *Index, w *Writer, rng *rand.Rand, known []byte) int {
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

// fragments are the messages that leave entries alone between free slots.
var fragments = map[string]bool{
	"known keys in any order": true, "known and new keys in any order": true, "holes and new keys": true, "holes": true,
}

// TestOneMessageEvictsWhatItWeighs sends many messages of each kind to a full index. Each
// may evict two entries a key, and makes bounded work. The bounds are the same for a small
// index and a large one.
func TestOneMessageEvictsWhatItWeighs(t *testing.T) {
	rounds, sizes := 20_000, []int64{4 << 20, 24 << 20}
	if raceEnabled || testing.Short() {
		rounds, sizes = 2000, sizes[:1]
	}
	for name, send := range messages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range sizes {
				x, rng, known := fullIndex(t, size, 1<<20)
				mostWork, few, keys := 0, 0, 0
				full, spans, bound := x.Stats().Evicted, len(x.spans), x.maxBytes
				for range rounds {
					before := x.Stats().Evicted
					var w Writer
					n := send(x, &w, rng, known)
					keys += n
					require.LessOrEqual(t, x.Stats().Evicted-before, int64(mostEvictedPerKey*n), "%d spans are unused", x.unusedSpans)
					if x.touched == len(x.touching) {
						require.LessOrEqual(t, w.Work(), mostWorkPerBatch+n*mostWorkPerKey)
					}
					mostWork = max(mostWork, w.Work())
					few += which(x.fewSpans)
				}
				st := x.Stats()
				t.Logf("%d MiB: %d entries, %d evicted by %d keys; work up to %d; %d times few spans", size>>20, st.Entries, st.Evicted-full, keys, mostWork, few)
				require.LessOrEqual(t, st.Bytes, bound)
				require.Len(t, x.spans, spans)
				if !fragments[name] {
					require.Zero(t, few, "spans that touch each other are joined")
				}
				checkBooks(t, x)
				key := randomKey(rng)
				store(t, x, key, 32)
				leading, _ := probeSilent(x, key, 32)
				require.Equal(t, 1, leading, "a key can still be stored")
			}
		})
	}
}

// TestSpansThatCannotBeJoined has a full index in which every span stands alone between
// free slots, none is unused and no memory is left for more. Even then a batch of stores
// evicts no more than one small span beside its due, and an evict none.
func TestSpansThatCannotBeJoined(t *testing.T) {
	x, rng, known := fullIndex(t, 4<<20, 1<<20)
	for range 40_000 { // of 64 keys one goes
		i := rng.IntN(len(known)/32) &^ 63
		before := x.Stats().Evicted
		evict(t, x, 0, cut(known, i, i+1), 32)
		require.LessOrEqual(t, x.Stats().Evicted-before, int64(1))
	}
	useSpans(x)
	spans := len(x.spans)
	stored, refused, most := 0, 0, int64(0)
	for range 5000 {
		before := x.Stats().Evicted
		key := randomKey(rng)
		var w Writer
		require.NoError(t, x.Store(&w, []int{0}, key, 32))
		if w.full {
			refused++
			continue
		}
		stored++
		evicted := x.Stats().Evicted - before
		most = max(most, evicted)
		require.LessOrEqual(t, evicted, int64(smallSpan+mostEvictedPerKey))
		leading, _ := probeSilent(x, key, 32)
		require.Equal(t, 1, leading)
	}
	t.Logf("%d keys stored, %d not; one evicted up to %d", stored, refused, most)
	require.Greater(t, stored, 20*refused)
	require.LessOrEqual(t, x.Stats().Bytes, int64(4<<20))
	for range 2000 {
		before := x.Stats().Evicted
		useSpans(x)
		n, err := x.Evict(0, oneOf(rng, known), 32)
		require.NoError(t, err)
		require.EqualValues(t, n, x.Stats().Evicted-before)
	}
	checkBooks(t, x)
	checkLinks(t, x)
	for range 1000 { // at the beginning of each segment there is no span in front
		useSpans(x)
		var w Writer
		require.NoError(t, x.Store(&w, []int{0}, someOf(rng, randomKeys(rng), batchKeys), 32))
	}
	require.Len(t, x.spans, spans)
	checkBooks(t, x)
}

// useSpans leaves no span unused.
func useSpans(x *Index) {
	for x.unusedSpans > 0 {
		x.newSpan(mustSplit)
	}
}
