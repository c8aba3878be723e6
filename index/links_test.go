package index

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// storeAt stores keys as blocks number and so on of a chain, behind the key before
// if it is not empty.
func storeAt(t testing.TB, x *Index, place int, number uint32, before, keys []byte) {
	t.Helper()
	var w Writer
	w.Number(number)
	require.NoError(t, x.Store(&w, []int{place}, keys, 32))
	x.Before(&w, before)
}

// cut returns keys from to end-1 of keys of 32 bytes.
func cut(keys []byte, from, end int) []byte { return keys[from*32 : end*32] }

// links tells what is known of each key: its number, the key that is said to stand
// in front of it as an index of keys, and ! if that is sure; - where nothing is
// known, . for an absent key.
func linksOf(x *Index, keys []byte) string {
	names := map[uint64]string{}
	for i := range len(keys) / 32 {
		names[x.hash(cut(keys, i, i+1))] = fmt.Sprint(i)
	}
	var words []string
	for i := range len(keys) / 32 {
		key := cut(keys, i, i+1)
		s := x.find(x.hash(key), key)
		if s == noSlot {
			words = append(words, ".")
			continue
		}
		have := x.linkOf(s)
		word := "-"
		if have.known {
			word = fmt.Sprint(have.number)
			if have.number > 0 {
				front, ok := names[have.before]
				if have.open || !ok {
					front = "?"
				}
				word += "<" + front
			}
			if have.sure {
				word += "!"
			}
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// linkCases are, by name, what is done with an index of two places, and what it knows of keys
// then, see linksOf.
type linkCases map[string]struct {
	do   func(t *testing.T, x *Index)
	want string
}

func (cases linkCases) run(t *testing.T, keys []byte) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			x := mustNew(t, Config{Places: 2, Groups: [][]int{{0}, {1}}})
			c.do(t, x)
			require.Equal(t, c.want, linksOf(x, keys))
			checkLinks(t, x)
		})
	}
}

func TestLinksOfStores(t *testing.T) {
	const n = 6
	keys, other := chain(1, n, 32), chain(2, n, 32)
	whole := func(t *testing.T, x *Index) { storeAt(t, x, 0, 0, nil, keys) }
	linkCases{
		"in order":         {whole, "0 1<0 2<1 3<2 4<3 5<4"},
		"without a number": {func(t *testing.T, x *Index) { store(t, x, keys, 32) }, "- - - - - -"},
		"the unknown number": {func(t *testing.T, x *Index) {
			storeAt(t, x, 0, noNumber, other[:32], keys)
			require.Zero(t, x.headBytes)
		}, "- - - - - -"},
		"a number later": {func(t *testing.T, x *Index) {
			store(t, x, keys, 32)
			whole(t, x)
		}, "0 1<0 2<1 3<2 4<3 5<4"},
		"no number later": {func(t *testing.T, x *Index) {
			whole(t, x)
			store(t, x, keys, 32)
		}, "0 1<0 2<1 3<2 4<3 5<4"},
		"open": {func(t *testing.T, x *Index) {
			storeAt(t, x, 0, 3, nil, cut(keys, 3, n))
		}, ". . . 3<? 4<3 5<4"},
		"pieces": {func(t *testing.T, x *Index) {
			storeAt(t, x, 0, 0, nil, cut(keys, 0, 3))
			storeAt(t, x, 0, 3, cut(keys, 2, 3), cut(keys, 3, n))
		}, "0 1<0 2<1 3<2 4<3 5<4"},
		"pieces out of order": {func(t *testing.T, x *Index) {
			storeAt(t, x, 0, 4, cut(keys, 3, 4), cut(keys, 4, n))
			storeAt(t, x, 0, 0, nil, cut(keys, 0, 2))
			storeAt(t, x, 0, 2, cut(keys, 1, 2), cut(keys, 2, 4))
		}, "0 1<0 2<1 3<2 4<3 5<4"},
		"pieces of one store": {func(t *testing.T, x *Index) {
			var w Writer
			w.Number(0)
			for i := range n {
				require.NoError(t, x.Store(&w, []int{0}, cut(keys, i, i+1), 32))
			}
		}, "0 1<0 2<1 3<2 4<3 5<4"},
		"a piece that goes away under its store": {func(t *testing.T, x *Index) {
			var w Writer
			w.Number(0)
			require.NoError(t, x.Store(&w, []int{0}, cut(keys, 0, 3), 32))
			evict(t, x, 0, cut(keys, 1, 3), 32)
			require.NoError(t, x.Store(&w, []int{0}, cut(keys, 3, n), 32))
		}, "0 . . 3<2 4<3 5<4"},
		"an open end does not undo what is known": {func(t *testing.T, x *Index) {
			whole(t, x)
			storeAt(t, x, 0, 3, nil, cut(keys, 3, n))
		}, "0 1<0 2<1 3<2 4<3 5<4"},
		"in front of the first there is nothing": {func(t *testing.T, x *Index) {
			storeAt(t, x, 0, 0, cut(other, 0, 1), keys)
		}, "0 1<0 2<1 3<2 4<3 5<4"},
		"a key in front of another length": {func(t *testing.T, x *Index) {
			var w Writer
			w.Number(3)
			require.NoError(t, x.Store(&w, []int{0}, cut(keys, 3, n), 32))
			x.Before(&w, keys[:31])
		}, ". . . 3<? 4<3 5<4"},
		"numbers end below 2^32-1": {func(t *testing.T, x *Index) {
			var w Writer
			w.Number(noNumber - 2)
			require.NoError(t, x.Store(&w, []int{0}, cut(keys, 0, 4), 32))
			require.NoError(t, x.Store(&w, []int{0}, cut(keys, 4, n), 32))
		}, "4294967293<? 4294967294<0 - - - -"},
		"another number": {func(t *testing.T, x *Index) {
			whole(t, x)
			storeAt(t, x, 0, 7, nil, cut(keys, 3, n))
		}, "0 1<0 2<1 7<? 8<3 9<4"},
		"another key in front": {func(t *testing.T, x *Index) {
			whole(t, x)
			storeAt(t, x, 0, 3, cut(keys, 0, 1), cut(keys, 3, n))
		}, "0 1<0 2<1 3<0 4<3 5<4"},
		"a fork": {func(t *testing.T, x *Index) {
			storeAt(t, x, 0, 0, nil, append(append([]byte(nil), cut(other, 0, 3)...), cut(keys, 3, n)...))
			storeAt(t, x, 0, 0, nil, cut(keys, 0, 3))
		}, "0 1<0 2<1 3<? 4<3 5<4"},
		"a key twice in a store": {func(t *testing.T, x *Index) {
			twice := append(append([]byte(nil), cut(keys, 0, 2)...), cut(keys, 0, 3)...)
			storeAt(t, x, 0, 0, nil, twice)
		}, "0 1<0 4<1 . . ."},
	}.run(t, keys)
}

// Keys that go, and come again.
func TestLinksOfEvictedKeys(t *testing.T) {
	keys := chain(1, 6, 32)
	sure := func(t *testing.T, x *Index) {
		storeAt(t, x, 0, 0, nil, keys)
		x.Confirm(0, nil, keys, 32)
	}
	linkCases{
		"evicted in the middle": {func(t *testing.T, x *Index) {
			sure(t, x)
			evict(t, x, 0, cut(keys, 2, 4), 32)
		}, "0! 1<0! . . 4<3! 5<4!"},
		"evicted at the front": {func(t *testing.T, x *Index) {
			sure(t, x)
			evict(t, x, 0, cut(keys, 0, 1), 32)
		}, ". 1<0! 2<1! 3<2! 4<3! 5<4!"},
		"evicted at the end": {func(t *testing.T, x *Index) {
			sure(t, x)
			evict(t, x, 0, cut(keys, 5, 6), 32)
		}, "0! 1<0! 2<1! 3<2! 4<3! ."},
		"evicted from one of two places": {func(t *testing.T, x *Index) {
			sure(t, x)
			storeAt(t, x, 1, 0, nil, keys)
			evict(t, x, 0, keys, 32)
		}, "0! 1<0! 2<1! 3<2! 4<3! 5<4!"},
		"restored, which does not make it sure": {func(t *testing.T, x *Index) {
			sure(t, x)
			evict(t, x, 0, cut(keys, 2, 4), 32)
			storeAt(t, x, 0, 2, cut(keys, 1, 2), cut(keys, 2, 4))
		}, "0! 1<0! 2<1 3<2 4<3! 5<4!"},
		"restored by one who knows no number": {func(t *testing.T, x *Index) {
			sure(t, x)
			evict(t, x, 0, cut(keys, 2, 4), 32)
			store(t, x, cut(keys, 2, 4), 32)
		}, "0! 1<0! - - 4<3! 5<4!"},
		"reset": {func(t *testing.T, x *Index) {
			sure(t, x)
			x.Reset()
			require.Zero(t, x.headBytes)
			store(t, x, cut(keys, 0, 2), 32)
		}, "- - . . . ."},
	}.run(t, keys)
}

// checkLinks checks that links stand only where there are keys, in order, and that
// their memory is told.
func checkLinks(t testing.TB, x *Index) {
	t.Helper()
	bytes := int64(0)
	for id := range x.segments {
		seg := &x.segments[id]
		if seg.books == nil {
			continue
		}
		l := &seg.links
		for i := range segmentSlots {
			if seg.class[i] == noClass {
				if l.linked.has(i) || l.sure.has(i) {
					t.Fatalf("slot %d is free and has links", i)
				}
			} else if l.linked.has(i) && (i == 0 || seg.class[i-1] == noClass) {
				t.Fatalf("slot %d is linked to none", i)
			}
		}
		for g, heads := range l.heads {
			bytes += int64(cap(heads)) * headBytes
			require.True(t, cap(heads) <= 64 && (cap(heads) == 0 || len(heads) > 0 && cap(heads) < 2*len(heads)+2), "%d heads in a list for %d", len(heads), cap(heads))
			for at, h := range heads {
				i := int(h.offset)
				require.Equal(t, g, i/64)
				require.True(t, at == 0 || h.offset > heads[at-1].offset, "heads are in order")
				require.True(t, seg.class[i] != noClass && !l.linked.has(i), "a head of slot %d, which is free or linked", i)
			}
		}
	}
	require.Equal(t, x.headBytes, bytes)
	require.LessOrEqual(t, x.headBytes, headsRoom(int64(len(x.segments))))
}

// TestHeadsOfGroup gives heads to the slots of a group one after the other, takes away more than
// half of them, and gives them again. The list never has room for more than the group has slots.
func TestHeadsOfGroup(t *testing.T) {
	x := mustNew(t, onePlace(0))
	store(t, x, chain(1, groupSlots, 32), 32)
	set := func(i int, known bool) {
		x.mu.Lock()
		x.setLink(slot(i), link{known: known, open: true, number: uint32(2*i + 1)})
		x.mu.Unlock()
		checkLinks(t, x)
	}
	for i := range groupSlots {
		set(i, true)
	}
	for i := groupSlots/2 - 1; i < groupSlots; i++ {
		set(i, false)
	}
	require.Equal(t, groupSlots/2-1, numHeads(x, 0))
	for i := range groupSlots {
		set(i, true)
	}
	require.Equal(t, groupSlots, numHeads(x, 0))
}

// numHeads returns how many heads a segment has.
func numHeads(x *Index, id int) (n int) {
	for _, heads := range x.segments[id].links.heads {
		n += len(heads)
	}
	return n
}

// TestLinksOfLongChains stores chains longer than a batch and than a segment, at
// once and in uneven pieces.
func TestLinksOfLongChains(t *testing.T) {
	const n = segmentSlots + 300
	keys := chain(1, n, 32)
	for _, piece := range []int{n, 1000, 65, 64, 63, 7} {
		t.Run(fmt.Sprint(piece), func(t *testing.T) {
			x := mustNew(t, onePlace(0))
			var w Writer
			w.Number(0)
			store(t, x, chain(2, 100, 32), 32) // so that the segment's border is somewhere
			for from := 0; from < n; from += piece {
				require.NoError(t, x.Store(&w, []int{0}, cut(keys, from, min(from+piece, n)), 32))
			}
			requireChain(t, x, keys)
			require.LessOrEqual(t, numHeads(x, 0)+numHeads(x, 1), 3, "a chain in order needs no heads")
			checkLinks(t, x)
		})
	}
}

// requireChain checks that keys are known as a chain from number 0 on.
func requireChain(t testing.TB, x *Index, keys []byte) {
	t.Helper()
	for i := range len(keys) / 32 {
		s := x.find(x.hash(cut(keys, i, i+1)), cut(keys, i, i+1))
		have := x.linkOf(s)
		ok := have.known && int(have.number) == i && (i == 0 || !have.open && have.before == x.hash(cut(keys, i-1, i)))
		require.True(t, ok, "block %d: %+v", i, have)
	}
}

// TestMovesKeepLinks makes a store move a chain that lies scattered in the log.
func TestMovesKeepLinks(t *testing.T) {
	const n = 60
	x, keys := mustNew(t, onePlace(0)), chain(1, n, 32)
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		var before []byte
		if i > 0 {
			before = cut(keys, i-1, i)
		}
		storeAt(t, x, 0, uint32(i), before, cut(keys, i, i+1))
	}
	x.Confirm(10, cut(keys, 9, 10), cut(keys, 10, 50), 32)
	want := linksOf(x, keys)
	require.Equal(t, 40, strings.Count(want, "!"))
	require.Greater(t, pieces(x, keys, 32), 8)
	store(t, x, keys, 32) // says nothing of numbers
	require.Equal(t, 1, pieces(x, keys, 32))
	require.Equal(t, want, linksOf(x, keys))
	requireChain(t, x, keys)
	require.Equal(t, 1, numHeads(x, 0), "what lies in order now is linked by bits")
	checkLinks(t, x)
}

// TestStridedStoreIsNotMoved stores a chain, and every second and fourth key of it
// for another place, over and over.
func TestStridedStoreIsNotMoved(t *testing.T) {
	const n = 2000
	x, keys := mustNew(t, Config{Places: 2, Groups: [][]int{{0}, {1}}}), chain(1, n, 32)
	storeAt(t, x, 0, 0, nil, keys)
	for _, stride := range []int{2, 4, 2} {
		var some []byte
		for i := stride - 1; i < n; i += stride {
			some = append(some, cut(keys, i, i+1)...)
		}
		var w Writer
		require.NoError(t, x.Store(&w, []int{1}, some, 32))
		storeAt(t, x, 0, 0, nil, keys)
		require.Equal(t, 1, pieces(x, keys, 32))
		requireChain(t, x, keys)
	}
	require.Equal(t, 1, numHeads(x, 0))
	checkBooks(t, x)
}

// TestInterleavedChainsAreMoved stores chains in turns, key by key, and then each as a
// whole: that they lie at even distances does not make them one chain.
func TestInterleavedChainsAreMoved(t *testing.T) {
	const n = 300
	for _, chains := range []uint64{2, 3 * mostApart / 2} {
		x, writers := mustNew(t, onePlace(0)), make([]Writer, chains)
		var all [][]byte
		for w := range chains {
			writers[w].Number(0)
			all = append(all, chain(w, n, 32))
		}
		for i := range n {
			for w, keys := range all {
				require.NoError(t, x.Store(&writers[w], []int{0}, cut(keys, i, i+1), 32))
			}
		}
		for _, keys := range all {
			require.Equal(t, n, pieces(x, keys, 32))
			storeAt(t, x, 0, 0, nil, keys)
			require.Less(t, pieces(x, keys, 32), n/2)
		}
		if chains == 2 { // more take more heads than there may be
			requireChain(t, x, all[1])
		}
		checkLinks(t, x)
		checkBooks(t, x)
	}
}

// TestHeadsAreBounded stores blocks that all need a head of their own.
func TestHeadsAreBounded(t *testing.T) {
	x := mustNew(t, onePlace(0))
	for i := range uint64(3 * segmentSlots) {
		storeAt(t, x, 0, 1, nil, chain(i, 1, 32))
	}
	room := headsRoom(int64(len(x.segments)))
	require.LessOrEqual(t, x.headBytes, room)
	require.Greater(t, x.headBytes, room/2, "the room is used")
	told := x.Stats().Bytes
	x.headBytes += 1000
	require.Equal(t, told+1000, x.Stats().Bytes, "and told")
	x.headBytes -= 1000
	known := 0
	for i := range uint64(3 * segmentSlots) {
		if linksOf(x, chain(i, 1, 32)) == "1<?" {
			known++
		}
	}
	require.Greater(t, known, len(x.segments)*segmentSlots/32)
	keys := chain(1<<20, 100, 32)
	storeAt(t, x, 0, 0, nil, keys) // at the bound nothing wrong is learnt
	for i, word := range strings.Fields(linksOf(x, keys)) {
		require.Contains(t, []string{"-", fmt.Sprint(i), fmt.Sprintf("%d<%d", i, i-1)}, word)
	}
	checkLinks(t, x)
}

// TestLinksAreEvicted fills an index several times over, in chains of all lengths.
func TestLinksAreEvicted(t *testing.T) {
	for name, cfg := range map[string]Config{"entries": onePlace(3000), "bytes": {MaxBytes: MinMaxBytes, Places: 1, Groups: [][]int{{0}}}} {
		t.Run(name, func(t *testing.T) {
			x, rng := mustNew(t, cfg), rand.New(rand.NewPCG(1, 1))
			rounds := uint64(2000)
			if raceEnabled || testing.Short() {
				rounds = 300
			}
			for i := range rounds {
				keys := chain(i/3, 1+rng.IntN(1+rng.IntN(300)), 32)
				storeAt(t, x, 0, 0, nil, keys)
				if i%2 == 0 {
					x.Confirm(0, nil, keys, 32)
				}
				if i%50 == 0 { // takes the place of many at once
					storeAt(t, x, 0, 7, nil, chain(1<<30+i, 500, 32))
				}
				if i%100 == 0 {
					checkLinks(t, x)
				}
			}
			checkLinks(t, x)
			checkBooks(t, x)
		})
	}
}

// TestLinksUnderWay lets everything that reads and changes links meet. Whatever is
// found of a chain must be so.
func TestLinksUnderWay(t *testing.T) {
	const chains, n, rounds = 4, 300, 150
	x := mustNew(t, onePlace(chains*n/2))
	var all [chains][]byte
	for i := range all {
		all[i] = chain(uint64(i), n, 32)
	}
	var group sync.WaitGroup
	run := func(seed uint64, do func(rng *rand.Rand, keys []byte, from, end int)) {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 2))
			for range rounds {
				from := rng.IntN(2) * rng.IntN(n)
				do(rng, all[rng.IntN(chains)], from, from+1+rng.IntN(n-from))
			}
		})
	}
	before := func(keys []byte, from int) []byte {
		if from == 0 {
			return nil
		}
		return cut(keys, from-1, from)
	}
	for seed := range uint64(2) {
		run(seed, func(_ *rand.Rand, keys []byte, from, end int) {
			storeAt(t, x, 0, uint32(from), before(keys, from), cut(keys, from, end))
		})
		run(10+seed, func(_ *rand.Rand, keys []byte, from, end int) {
			x.Confirm(uint32(from), before(keys, from), cut(keys, from, end), 32)
		})
		var trail Trail
		run(20+seed, func(rng *rand.Rand, keys []byte, from, end int) {
			key := cut(keys, end-1, end)
			if down := traceAll(x, &trail, key, uint32(end-1)); int(down) > end {
				t.Errorf("came down from block %d to %d", end-1, down)
			} else if down == 0 {
				requireRuns(t, trail.Runs, end)
			}
			x.Use(&trail)
			if said, ok := x.Recite(&trail, before(keys, from), key, uint32(end-1), end-from); ok && string(said) != string(cut(keys, from, end)) {
				t.Errorf("blocks %d to %d are recited as others", from, end)
			}
		})
	}
	run(30, func(rng *rand.Rand, keys []byte, from, end int) {
		if _, err := x.Evict(0, cut(keys, from, min(end, from+10)), 32); err != nil {
			t.Error(err)
		}
		if rng.IntN(30) == 0 {
			x.Reset()
		}
	})
	group.Wait()
	checkLinks(t, x)
	checkBooks(t, x)
}

// requireRuns checks that runs, the last one first, cover n blocks.
func requireRuns(t testing.TB, runs []TrailRun, n int) {
	t.Helper()
	for _, r := range runs {
		if n -= int(r.N); int(r.From) != n || r.N == 0 {
			t.Errorf("a run of %d blocks from %d on, in front of block %d", r.N, r.From, n+int(r.N))
			return
		}
	}
	if n != 0 {
		t.Errorf("the first %d blocks are missing", n)
	}
}
