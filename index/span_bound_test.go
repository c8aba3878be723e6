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
		evict(t, x, 0, keys[i:i+hashLen], hashLen)
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
	require.LessOrEqual(t, x.spanBytes(), spanRoom(len(x.spans))+int64(len(x.segments))*fewRefs*refBytes+mostSpareRefs)
	checkBooks(t, x)
}

// TestShareOfSpans fills an index with long chains, which need few spans: there is room
// for a share of more.
func TestShareOfSpans(t *testing.T) {
	x := mustNew(t, Config{MaxBytes: 32 << 20, Places: 1, Groups: [][]int{{0}}})
	for n := uint64(0); !x.evicting; n++ {
		store(t, x, chain(n, 10_000, 8), 8)
	}
	least := int(x.slots / slotsPerSpan)
	require.Less(t, len(x.spans)*spanChunk, least, "so far")
	for len(x.spans)*spanChunk < least {
		require.True(t, x.room(0, 0, 1))
		x.addSpans()
	}
	require.LessOrEqual(t, x.Stats().Bytes, x.maxBytes)
	checkBooks(t, x)
}

// TestJoin joins two of three neighbours.
func TestJoin(t *testing.T) {
	const theirs, ours = 7, 8
	for name, c := range map[string]struct {
		spans [3]span // by place in the log
		want  []span
	}{
		"the closest times": {
			[3]span{{time: 10}, {time: 100}, {time: 105}},
			[]span{{time: 10, n: 10}, {time: 105, n: 20}},
		},
		"the newer one first": {
			[3]span{{time: 105}, {time: 100}, {time: 10}},
			[]span{{time: 105, n: 20}, {time: 10, n: 10}},
		},
		"of one list before closer ones of two": {
			[3]span{{time: 100}, {time: 100, hot: true}, {time: 10, hot: true}},
			[]span{{time: 100, n: 10}, {time: 100, n: 20, hot: true}},
		},
		"the store under way": {
			[3]span{{time: 10}, {time: 100, store: theirs}, {time: 100, store: ours}},
			[]span{{time: 10, n: 10}, {time: 100, n: 20, store: ours}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := mustNew(t, onePlace(0))
			keys := chain(1, 30, 32)
			store(t, x, keys, 32)
			x.policy.clock = 200
			x.cutOut(0, 30)
			for i, s := range c.spans {
				id := x.newSpan(mustSplit)
				s.first, s.n, s.mark = slot(10*i), 10, markUsed
				*x.span(id) = s
				x.link(id, noSpan)
				x.addRef(&x.segments[0], i, 10*i, id)
			}
			x.joinAt = 0
			unused := x.unusedSpans
			seg, from, to := x.nextSpans()
			x.join(seg, x.closest(seg, from, to), ours)
			require.Equal(t, unused+1, x.unusedSpans)
			for i, r := range seg.spans {
				s := x.span(r.id)
				require.Equal(t, c.want[i], span{time: s.time, n: s.n, hot: s.hot, store: s.store})
			}
			checkBooks(t, x)
		})
	}
}
