package index

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/fielderror"
	"github.com/hitline/hitline/simd"
)

func TestMain(m *testing.M) {
	if err := simd.ForceFromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// onePlace is a pool of one group on one rank.
func onePlace(maxEntries int64) Config {
	return Config{MaxEntries: maxEntries, Places: 1, Groups: [][]int{{0}}}
}

func mustNew(t testing.TB, cfg Config) *Index {
	t.Helper()
	x, err := New(cfg)
	require.NoError(t, err)
	return x
}

// chain returns n hashes of hashLen bytes of a chain that begins with seed.
func chain(seed uint64, n, hashLen int) []byte {
	var b []byte
	var prev [32]byte
	for i := range n {
		prev = sha256.Sum256(binary.BigEndian.AppendUint64(prev[:], seed<<20+uint64(i)))
		b = append(b, append(prev[:], prev[:]...)[:hashLen]...)
	}
	return b
}

// probe runs a whole lookup, in batches of so many keys, and returns the number
// of leading keys that group 0 has, and all presence bits.
func probe(x *Index, keys []byte, hashLen, batch int, stop bool) (leading int, bits []bool) {
	var c Cursor
	var runs [3]Run // few, so that they fill up
	x.Begin(&c, hashLen)
	for len(keys) > 0 {
		piece := keys[:min(len(keys), batch*hashLen)]
		keys = keys[len(piece):]
		for len(piece) > 0 {
			filled, covered, clean := x.Probe(&c, piece, 1, runs[:], stop)
			if !clean {
				clear(bits)
			}
			for _, r := range runs[:filled] {
				for range r.N {
					bits = append(bits, r.Coverage != nil && r.Coverage.Complete&1 == 1)
				}
			}
			piece = piece[covered*hashLen:]
			if stop && !bits[len(bits)-1] {
				piece, keys = nil, nil
			}
		}
	}
	x.End(&c)
	if leading = slices.Index(bits, false); leading < 0 {
		leading = len(bits)
	}
	return leading, bits
}

func store(t testing.TB, x *Index, keys []byte, hashLen int) {
	t.Helper()
	var w Writer
	require.NoError(t, x.Store(&w, []int{0}, keys, hashLen))
}

// drawnKeys returns n hashes of 32 bytes.
func drawnKeys(seed byte, n int) []byte {
	keys := make([]byte, n*32)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(keys)
	return keys
}

// skipIfBuildAllocates skips a test that counts allocations if the build makes some of its own.
func skipIfBuildAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
}

// evict takes keys away from a place and returns how many were there.
func evict(t testing.TB, x *Index, place int, keys []byte, hashLen int) int {
	t.Helper()
	n, err := x.Evict(place, keys, hashLen)
	require.NoError(t, err)
	return n
}

func TestBadArguments(t *testing.T) {
	x := mustNew(t, onePlace(0))
	var w Writer
	require.ErrorIs(t, x.Store(&w, []int{1}, chain(1, 1, 32), 32), ErrPlace)
	require.ErrorIs(t, x.Store(&w, []int{-1}, chain(1, 1, 32), 32), ErrPlace)
	require.ErrorIs(t, x.Store(&w, []int{0}, chain(1, 1, 32), 0), ErrHashLen)
	require.ErrorIs(t, x.Store(&w, []int{0}, make([]byte, 65), 65), ErrHashLen)
	require.ErrorIs(t, x.Store(&w, []int{0}, make([]byte, 33), 32), ErrCutKey)
	_, err := x.Evict(0, make([]byte, 33), 32)
	require.ErrorIs(t, err, ErrCutKey)
	for _, cfg := range []Config{
		{Places: 0}, {Places: 1, MaxBytes: 100}, {Places: 1, MaxEntries: -1},
		{Places: 1, Groups: [][]int{{1}}}, {Places: 1, Groups: make([][]int, 65)},
		{Places: 1 << 16, Groups: [][]int{make([]int, 1<<16)}},
	} {
		_, err := New(cfg)
		require.ErrorIs(t, err, fielderror.ErrConfig)
	}
}

func TestWriterContinuesItsChain(t *testing.T) {
	x := mustNew(t, onePlace(100))
	keys := chain(1, 90, 32)
	var w Writer
	for at := 0; at < len(keys); at += 32 { // one key a call, as a slow peer would
		require.NoError(t, x.Store(&w, []int{0}, keys[at:at+32], 32))
	}
	store(t, x, chain(2, 50, 32), 32) // makes 40 of the first make way
	leading, bits := probe(x, keys, 32, 90, false)
	require.InDelta(t, 50, leading, rowSlots, "the tail goes first")
	require.NotContains(t, bits[leading:], true)
}

func TestChainLongerThanTheIndexKeepsItsBeginning(t *testing.T) {
	x := mustNew(t, onePlace(1000))
	store(t, x, chain(2, 700, 32), 32)
	keys := chain(1, 5000, 32)
	store(t, x, keys, 32)
	leading, _ := probe(x, keys, 32, 512, true)
	require.InDelta(t, 1000, leading, rowSlots, "but for what shares a row with it")
	require.EqualValues(t, 1000, x.Stats().Entries)
}

// probeSilent looks without touching.
func probeSilent(x *Index, keys []byte, hashLen int) (int, []bool) {
	var c Cursor
	runs := make([]Run, len(keys))
	var bits []bool
	x.Begin(&c, hashLen)
	filled, _, _ := x.Probe(&c, keys, 1, runs, false)
	for _, r := range runs[:filled] {
		for range r.N {
			bits = append(bits, r.Coverage != nil)
		}
	}
	c.Drop()
	return slices.Index(append(slices.Clone(bits), false), false), bits
}

// checkBooks holds everything that the index keeps about its entries against the
// entries.
func checkBooks(t testing.TB, x *Index) {
	t.Helper()
	free, entries := int64(0), int64(0)
	counts := make([]uint32, len(x.classes.use))
	for id := range x.segments {
		seg := &x.segments[id]
		if seg.segmentMeta == nil {
			continue // of TestMoreSegmentsThanSlotsCanNumber
		}
		unused := 0
		for i := range segmentSlots { // it runs millions of times: require's functions would take most of the time
			if seg.used.has(i) != (seg.class[i] != noClass) {
				require.Fail(t, "a slot in use has no class, or a free one has one")
			}
			if !seg.used.has(i) {
				unused++
				continue
			}
			entries++
			counts[seg.class[i]]++
			key := seg.key(i)
			if x.find(x.hash(key), key) != slot(id)<<segmentBits+slot(i) {
				require.Fail(t, "an entry is not in the table")
			}
			if used := seg.lastUse[i/rowSlots]; used <= 0 || used < seg.bound || used > x.clock {
				require.Failf(t, "a row's last use is out of bounds", "%d is not in %d to %d", used, max(seg.bound, 1), x.clock)
			}
		}
		require.Equal(t, unused, seg.free)
		free += int64(unused)
		checkGroups(t, x, seg)
		require.Equal(t, (unused+63)/64, seg.level)
		require.Same(t, seg.segmentMeta, x.byUse[seg.heapAt])
		require.LessOrEqual(t, x.byUse[(max(seg.heapAt, 1)-1)/2].bound, seg.bound)
	}
	require.Equal(t, free, x.free)
	require.Equal(t, x.entries, entries)
	checkFreeSegments(t, x)
	checkClasses(t, x, counts)
	checkTable(t, x)
}

// TestTouchesOfEvicted applies touches of entries that are gone by then, as when
// a store evicts between a lookup and the next change.
func TestTouchesOfEvicted(t *testing.T) {
	for name, gone := range map[string][2]int{"head": {0, 3}, "middle": {4, 6}, "tail": {7, 10}, "all": {0, 10}, "one": {5, 6}} {
		x := mustNew(t, onePlace(0))
		keys := chain(1, 10, 32)
		store(t, x, keys, 32)
		store(t, x, chain(2, 10, 32), 32)
		before := x.clock
		probe(x, keys, 32, 10, true)
		n := evict(t, x, 0, keys[gone[0]*32:gone[1]*32], 32)
		require.Equal(t, gone[1]-gone[0], n)
		require.True(t, x.applyTouches(100))
		checkBooks(t, x)
		require.GreaterOrEqual(t, usedSince(x, before), 10-n, name)
	}
}

// usedSince returns how many entries are in rows that were used after a time.
func usedSince(x *Index, time uint64) (n int) {
	for id := range x.segments {
		for i := range segmentSlots {
			if seg := &x.segments[id]; seg.used.has(i) && seg.lastUse[i/rowSlots] > time {
				n++
			}
		}
	}
	return n
}

// TestTouchesOfALongStretch uses a stretch of many segments in several holds.
func TestTouchesOfALongStretch(t *testing.T) {
	x := mustNew(t, onePlace(0))
	keys := chain(1, 4*segmentSlots, 32)
	store(t, x, keys, 32)
	probe(x, keys, 32, 1024, true)
	require.True(t, x.applyTouches(5))
	require.EqualValues(t, 1, x.clock, "nothing was stored since")
	store(t, x, chain(2, 1, 32), 32)
	before := x.clock
	probe(x, keys, 32, 1024, true)
	require.False(t, x.applyTouches(2))
	require.Equal(t, 2*segmentSlots, usedSince(x, before), "the tail first")
	require.True(t, x.applyTouches(3))
	require.Equal(t, 4*segmentSlots, usedSince(x, before))
}

// pieces counts the stretches of the log that a chain lies in.
func pieces(x *Index, keys []byte, hashLen int) int {
	n, next := 0, noSlot
	for ; len(keys) > 0; keys = keys[hashLen:] {
		s := x.find(x.hash(keys[:hashLen]), keys[:hashLen])
		if s == noSlot || s != next {
			n++
		}
		next = s + 1
	}
	return n
}

// TestScatteredChainIsMoved stores every second key of a chain before the chain
// itself, as when a group of larger blocks comes first.
func TestScatteredChainIsMoved(t *testing.T) {
	for _, max := range []int64{0, 3000, 2000} {
		x := mustNew(t, Config{MaxEntries: max, Places: 2, Groups: [][]int{{0}, {1}}})
		keys := chain(1, 2000, 32)
		var seconds []byte
		for i := 1; i < 2000; i += 2 {
			seconds = append(seconds, keys[i*32:i*32+32]...)
		}
		var w Writer
		require.NoError(t, x.Store(&w, []int{1}, seconds, 32))
		store(t, x, keys, 32)
		require.LessOrEqual(t, pieces(x, keys, 32), 2000/batchKeys+2)
		require.EqualValues(t, 2000, x.Stats().Entries)
		require.EqualValues(t, 3000, x.Stats().Stored)
		checkBooks(t, x)
		for group, stride := range []int{1, 2} {
			var c Cursor
			var runs [64]Run
			x.Begin(&c, 32)
			first := keys[(stride-1)*32:]
			for asked := 0; asked < 2000/stride; {
				filled, covered, _ := x.Probe(&c, first[asked*stride*32:], stride, runs[:], true)
				asked += covered
				for _, r := range runs[:filled] {
					require.True(t, r.Coverage != nil && r.Coverage.Complete>>group&1 == 1)
				}
			}
			x.End(&c)
			require.True(t, x.applyTouches(maxTouches))
			checkBooks(t, x)
		}
	}
}

// TestKeyTwiceInAScatteredBatch must not move one key to two places.
func TestKeyTwiceInAScatteredBatch(t *testing.T) {
	x := mustNew(t, onePlace(0))
	keys := chain(1, 60, 32)
	for i := 58; i >= 0; i -= 2 {
		store(t, x, keys[i*32:i*32+32], 32)
	}
	keys = append(keys, keys[:3*32]...)
	store(t, x, keys, 32)
	require.EqualValues(t, 60, x.Stats().Entries)
	checkBooks(t, x)
	leading, _ := probe(x, keys, 32, 100, true)
	require.Equal(t, 63, leading)
}

// TestPageAtTheBrim stores more keys of one hash than a page holds. The chain keeps its
// beginning, and the next one finds room once entries are gone.
func TestPageAtTheBrim(t *testing.T) {
	const n = pageCells
	x := mustNew(t, onePlace(0))
	x.badHash = func([]byte) uint64 { return 0 }
	keys := chain(1, n, 32)
	var w Writer
	require.NoError(t, x.Store(&w, []int{0}, keys, 32))
	kept, _ := probe(x, keys, 32, 100, true)
	require.True(t, w.full)
	require.EqualValues(t, kept, x.entries, "the beginning is kept and nothing else")
	require.Equal(t, pageBrim, kept)
	checkBooks(t, x)
	require.LessOrEqual(t, len(x.table.directory), 4096, "the directory must not explode")
	require.Less(t, x.table.bytes(), int64(1<<20))

	other := chain(2, 100, 32)
	found, _ := probe(x, other, 32, 100, true)
	require.Zero(t, found)
	store(t, x, other, 32)
	found, _ = probe(x, other, 32, 100, true)
	require.Zero(t, found)
	held, err := x.Evict(0, keys, 32)
	require.NoError(t, err)
	require.Equal(t, kept, held)
	store(t, x, other, 32)
	found, _ = probe(x, other, 32, 100, true)
	require.Equal(t, 100, found)
	checkBooks(t, x)
}

func TestByteBound(t *testing.T) {
	SkipSlow(t)
	const bound = 16 << 20
	x := mustNew(t, Config{MaxBytes: bound, Places: 1, Groups: [][]int{{0}}})
	for i := range uint64(400) {
		store(t, x, chain(i, 1000, 32), 32)
		require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
	}
	full := x.Stats().Entries
	require.Greater(t, full, int64(bound/80), "too little of the memory is used")
	last := chain(399, 1000, 32)
	leading, _ := probe(x, last, 32, 2000, true)
	require.Equal(t, 1000, leading)

	// After a reset keys of another length take the memory over.
	x.Reset()
	for i := range uint64(400) {
		store(t, x, chain(i, 1000, 16), 16)
		require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
	}
	require.Greater(t, x.Stats().Entries, full)
	leading, _ = probe(x, chain(399, 1000, 16), 16, 2000, true)
	require.Equal(t, 1000, leading)
	leading, _ = probe(x, last, 32, 2000, true)
	require.Zero(t, leading)
}

// TestByteBoundOfSmallKeys is where the table weighs most.
func TestByteBoundOfSmallKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds under the race detector and emulators, and has one goroutine")
	}
	for _, bound := range []int64{MinMaxBytes, 5 << 20, 7 << 20, 9 << 20} {
		x := mustNew(t, Config{MaxBytes: bound, Places: 1, Groups: [][]int{{0}}})
		for i := range uint64(600) {
			store(t, x, chain(i, 1000, 8), 8)
			require.LessOrEqual(t, x.Stats().Bytes, bound)
		}
	}
}

// TestBytesAreTrue holds what the index says of its memory against the runtime.
func TestBytesAreTrue(t *testing.T) {
	var before, after runtime.MemStats
	keys := chain(1, 400000, 32)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	x := mustNew(t, onePlace(0))
	store(t, x, keys, 32)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	real := float64(after.HeapAlloc) - float64(before.HeapAlloc)
	require.InEpsilon(t, real, x.Stats().Bytes, 0.05)
	t.Logf("%.1f bytes an entry", real/400000)
	runtime.KeepAlive(keys)
}

func TestClassesRunOut(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds under the race detector and emulators, and has one goroutine")
	}
	x := mustNew(t, Config{Places: 20, Groups: [][]int{{0}}})
	keys := chain(1, 1<<17, 8)
	var err error
	for p := range 20 {
		for i := 0; i < 1<<17 && err == nil; i++ {
			if i>>p&1 == 1 {
				var w Writer
				err = x.Store(&w, []int{p}, keys[i*8:i*8+8], 8)
			}
		}
	}
	require.ErrorIs(t, err, ErrClasses)
	require.EqualValues(t, 1, x.Stats().Refused)
	var w Writer
	require.NoError(t, x.Store(&w, []int{0}, chain(2, 10, 8), 8), "what needs no new class still works")
}

// TestConcurrent lets lookups, stores, evictions and resets meet. Chain 0 is
// never evicted on request and the index is large enough for all, so without
// resets it must always be found whole.
func TestConcurrent(t *testing.T) {
	x := mustNew(t, onePlace(0))
	keep := chain(0, 3000, 32)
	store(t, x, keep, 32)
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			c := chain(g+1, 2000, 32)
			for range 30 {
				if leading, _ := probe(x, keep, 32, 700, true); leading != 3000 {
					t.Errorf("found %d of 3000", leading)
					return
				}
				store(t, x, c, 32)
				if leading, _ := probe(x, c, 32, 700, true); leading != 2000 {
					t.Errorf("found %d of 2000 just stored", leading)
					return
				}
				_, _ = x.Evict(0, c[32*100:], 32)
				_ = x.Stats()
			}
		})
	}
	wg.Wait()
	for range 3 { // resets, for the race detector
		wg.Go(func() { probe(x, keep, 32, 100, false) })
		wg.Go(x.Reset)
		wg.Go(func() { store(t, x, keep, 32) })
	}
	wg.Wait()
}

func TestProbeDoesNotAllocate(t *testing.T) {
	skipIfBuildAllocates(t)
	x := mustNew(t, onePlace(0))
	keys := chain(1, 5000, 32)
	store(t, x, keys, 32)
	var c Cursor
	var runs [64]Run
	require.Zero(t, testing.AllocsPerRun(200, func() {
		x.Begin(&c, 32)
		_, _, _ = x.Probe(&c, keys, 1, runs[:], true)
		x.End(&c)
		x.applyTouches(maxTouches)
	}))
}

// TestClassesOfNoEntry lets 32 ranks store the same chunks, each time in another order:
// every order passes through sets of places of its own, and in the end all ranks hold
// all entries.
func TestClassesOfNoEntry(t *testing.T) {
	SkipSlow(t)
	const places = 32
	all := make([]int, places)
	for p := range all {
		all[p] = p
	}
	const bound = 4 << 20
	x := mustNew(t, Config{MaxBytes: bound, Places: places, Groups: [][]int{all}})
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range uint64(5000) {
		c := chain(n, 4, 8)
		for _, p := range rng.Perm(places) {
			var w Writer
			require.NoError(t, x.Store(&w, []int{p}, c, 8), "chain %d", n)
		}
		leading, _ := probe(x, c, 8, 4, true)
		require.Equal(t, 4, leading)
		require.LessOrEqual(t, x.Stats().Bytes, int64(bound))
	}
	for _, s := range x.segments {
		for _, id := range s.class {
			if id != noClass {
				require.EqualValues(t, 1, x.classes.coverage[id].Complete)
			}
		}
	}
	checkBooks(t, x)
}

// TestMoreSegmentsThanSlotsCanNumber stores in an index whose byte bound is beyond what
// 32 bits can number.
func TestMoreSegmentsThanSlotsCanNumber(t *testing.T) {
	x := mustNew(t, Config{MaxBytes: 1 << 40, Places: 1, Groups: [][]int{{0}}})
	x.segments = make([]segment, 1<<20-2)
	keys := chain(1, 3*segmentSlots, 32)
	store(t, x, keys, 32)
	leading, _ := probe(x, keys, 32, 4096, true)
	require.Equal(t, segmentSlots, leading)
	require.EqualValues(t, segmentSlots, x.Stats().Entries)
	store(t, x, chain(2, 10, 32), 32)
	checkBooks(t, x)
}

// TestClassesOfAFullIndex fills an index, then has other ranks store the same entries,
// each some of them, so that nearly every entry has a class of its own; and then stores
// block by block.
func TestClassesOfAFullIndex(t *testing.T) {
	SkipSlow(t)
	const places, hashLen = 64, 8
	for _, bound := range []int64{MinMaxBytes, 14 << 20} {
		x := mustNew(t, Config{MaxBytes: bound, Places: places, Groups: [][]int{{0}}})
		var chains []uint64
		for n := uint64(0); !x.evicting; n++ {
			store(t, x, chain(n, 1000, hashLen), hashLen)
			chains = append(chains, n)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		worst := x.Stats().Bytes
		for _, n := range chains[len(chains)-min(len(chains), 50):] {
			keys := chain(n, 1000, hashLen)
			for at := 0; at < len(keys); at += hashLen {
				for range 3 {
					var w Writer
					_ = x.Store(&w, []int{rng.IntN(places)}, keys[at:at+hashLen], hashLen) // or ErrClasses
				}
			}
			worst = max(worst, x.Stats().Bytes)
		}
		require.LessOrEqual(t, worst, bound, "of %d", bound)
		for n := range uint64(1000) {
			key := chain(1<<40+n, 1, hashLen)
			store(t, x, key, hashLen)
			leading, _ := probe(x, key, hashLen, 1, true)
			require.Equal(t, 1, leading, "key %d, in an index of %d bytes", n, bound)
		}
		require.LessOrEqual(t, x.Stats().Bytes, bound)
		checkBooks(t, x)
	}
}

// The bound of an index that holds entries goes down to what they need, and up again.
func TestLimit(t *testing.T) {
	x, err := New(Config{MaxBytes: 64 << 20, Places: 1, Groups: [][]int{{0}}})
	require.NoError(t, err)
	empty := x.Limit(1)
	require.GreaterOrEqual(t, empty, int64(MinMaxBytes))
	require.Less(t, empty, int64(8<<20))
	require.EqualValues(t, 64<<20, x.Limit(64<<20))
	stored := 0
	put := func(n int) {
		for ; n > 0; n -= 1000 {
			var keys []byte
			for range 1000 {
				sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(stored)))
				keys = append(keys, sum[:]...)
				stored++
			}
			require.NoError(t, x.Store(&Writer{}, []int{0}, keys, 32))
		}
	}
	put(100_000)
	before := x.Stats()
	require.Zero(t, before.Evicted)
	least := x.Limit(1)
	require.Equal(t, least, x.Stats().MaxBytes)
	require.GreaterOrEqual(t, least, before.Bytes-fixedBytes)
	require.Equal(t, before.Entries, x.Stats().Entries, "nothing is evicted")
	put(400_000)
	after := x.Stats()
	require.LessOrEqual(t, after.Bytes, least)
	require.NotZero(t, after.Evicted)
	require.EqualValues(t, 64<<20, x.Limit(64<<20))
	put(400_000)
	require.Equal(t, after.Evicted, x.Stats().Evicted, "it may grow again")
}
