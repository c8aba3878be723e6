package index

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpansAtTheBound fills an index with long chains, which are few spans, and then
// stores block by block, as an engine does that decodes: each block is a span.
func TestSpansAtTheBound(t *testing.T) {
	const bound, hashLen = 4 << 20, 8
	x := mustNew(t, Config{MaxBytes: bound, Places: 1, Groups: [][]int{{0}}})
	n := uint64(0)
	for ; !x.evicting; n++ {
		store(t, x, chain(n, 1000, hashLen), hashLen)
	}
	for ; n < 100_000; n++ {
		store(t, x, chain(n, 1, hashLen), hashLen)
	}
	require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
	checkBooks(t, x)
}

// TestFoundIsNotEvictedForItsOwnBatch stores what is to be evicted next together with
// new keys, in an index that has no memory for another span.
func TestFoundIsNotEvictedForItsOwnBatch(t *testing.T) {
	x := mustNew(t, onePlace(1000))
	keys := chain(1, 1000, 32)
	store(t, x, keys, 32)
	for x.maxBytes = x.bytes(); !x.room(0, 0, 0); x.maxBytes += 1 << 10 { // too little for more spans
	}
	for x.unusedSpans > batchKeys+1 { // as where nearly all are in use
		x.newSpan(mustSplit)
	}
	batch := append(slices.Clone(keys[968*32:]), chain(2, 32, 32)...)
	store(t, x, batch, 32)
	leading, _ := probeSilent(x, batch, 32)
	require.Equal(t, 64, leading, "of what was just stored")
	checkBooks(t, x)
}

// TestHolesAtTheBound evicts every second key of what fills an index.
func TestHolesAtTheBound(t *testing.T) {
	const bound, hashLen = 6 << 20, 8
	x := mustNew(t, Config{MaxBytes: bound, Places: 1, Groups: [][]int{{0}}})
	var keys []byte
	for n := uint64(0); !x.evicting; n++ {
		keys = append(keys, chain(n, 1000, hashLen)...)
		store(t, x, keys[len(keys)-1000*hashLen:], hashLen)
	}
	for i := 0; i < len(keys); i += 2 * hashLen {
		_, err := x.Evict(0, keys[i:i+hashLen], hashLen)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
	checkBooks(t, x)
}

// TestBooksOfSpansThatMerge stores chains block by block and then looks them up, which
// makes one span of all that is in a segment.
func TestBooksOfSpansThatMerge(t *testing.T) {
	const hashLen = 8
	x := mustNew(t, onePlace(0))
	for n := range uint64(20) {
		keys := chain(n, segmentSlots, hashLen)
		for i := 0; i < len(keys); i += hashLen {
			store(t, x, keys[i:i+hashLen], hashLen)
		}
		_, _ = probe(x, keys, hashLen, segmentSlots, true)
	}
	x.applyTouches(touchMost)
	require.LessOrEqual(t, x.spanBytes(), spanRoom(len(x.spans))+int64(len(x.segments))*fewRefs*refBytes)
	checkBooks(t, x)
}
