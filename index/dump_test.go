package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// clone copies a record, which is valid during a call only.
func (r *DumpRecord) clone() DumpRecord {
	c := *r
	c.Places, c.Keys, c.Before = slices.Clone(r.Places), slices.Clone(r.Keys), slices.Clone(r.Before)
	return c
}

// dumpRecords dumps an index at once.
func dumpRecords(t testing.TB, x *Index) (records []DumpRecord) {
	t.Helper()
	require.NoError(t, x.Dump(context.Background(), DumpOptions{}, func(r *DumpRecord) error {
		records = append(records, r.clone())
		return nil
	}))
	return records
}

// dumpBetween dumps an index in the smallest holds, and calls meanwhile between them.
func dumpBetween(t testing.TB, x *Index, meanwhile func()) (records []DumpRecord) {
	t.Helper()
	d, err := x.beginDump()
	require.NoError(t, err)
	d.hold = workPerCall + 1
	for done := false; !done; {
		meanwhile()
		done, err = x.dumpSome(d)
		require.NoError(t, err)
		require.NoError(t, d.emit(func(r *DumpRecord) error {
			records = append(records, r.clone())
			return nil
		}))
	}
	require.Nil(t, x.dump)
	x.endDump()
	return records
}

// loadInto loads records into an index.
func loadInto(t testing.TB, x *Index, records []DumpRecord) *Index {
	t.Helper()
	l := x.NewLoader()
	for i := range records {
		require.NoError(t, l.Load(&records[i]))
	}
	checkBooks(t, x)
	checkLinks(t, x)
	st := x.Stats()
	require.Zero(t, st.Stored+st.Evicted+st.Refused)
	return x
}

// evictionOrder evicts all entries, one by one, and returns the keys.
func evictionOrder(x *Index) (keys []string) {
	for id := x.oldest(noStore); id != noSpan; id = x.oldest(noStore) {
		s := x.span(id)
		seg, i := x.at(s.first + slot(s.n) - 1)
		keys = append(keys, string(seg.key(i)))
		x.evictTail(id, 1)
	}
	return keys
}

// useSome stores chains and parts of them and looks others up.
func useSome(t testing.TB, x *Index, keys []byte, rng *rand.Rand) {
	n := len(keys) / 32
	for range 300 {
		from := rng.IntN(n)
		part := cut(keys, from, from+1+rng.IntN(min(n-from, 1+rng.IntN(1500))))
		switch rng.IntN(4) {
		case 0:
			probe(x, part, 32, 1024, false)
		case 1:
			_, err := x.Evict(rng.IntN(x.places), cut(part, 0, min(len(part)/32, 20)), 32)
			require.NoError(t, err)
		default:
			storeAt(t, x, rng.IntN(x.places), uint32(from), cut(keys, max(from-1, 0), from), part)
		}
	}
	for !x.applyTouches(touchBatch) { // a dump does so, too
		continue
	}
}

// A loaded index has the same entries and links as the one that was dumped in peace, and evicts them in
// the same order.
func TestDumpOfAQuietIndex(t *testing.T) {
	for seed := range uint64(6) {
		for _, places := range []int{1, 3, 100} {
			rng := rand.New(rand.NewPCG(seed, 1))
			cfg, keys := manyPlaces(0, places), drawnKeys(byte(seed), 12_000)
			if seed%2 == 1 {
				cfg.MaxEntries = 9000
			}
			x := mustNew(t, cfg)
			useSome(t, x, keys, rng)
			x.policy.bonus = float64(seed) / 3
			y := loadInto(t, mustNew(t, cfg), dumpRecords(t, x))
			require.Equal(t, held(x, keys), held(y, keys))
			require.Equal(t, x.policy.bonus, y.policy.bonus)
			sameLinks(t, x, y, keys)
			require.Equal(t, evictionOrder(x), evictionOrder(y))
		}
	}
}

// sameLinks checks that keys have the same links in two indexes, but for the key in front of one if it is not in
// the first index.
func sameLinks(t testing.TB, x, y *Index, keys []byte) {
	t.Helper()
	a, b := strings.Fields(linksOf(x, keys)), strings.Fields(linksOf(y, keys))
	for i := range a {
		have, want := b[i], strings.TrimSuffix(a[i], "!")
		if number, front, ok := strings.Cut(want, "<"); ok && front != "?" {
			f, err := strconv.Atoi(front)
			require.NoError(t, err)
			if a[f] == "." {
				want = number + "<?"
			}
		}
		require.Equal(t, want, have, "key %d", i)
	}
}

// One dump is under way at a time, and whatever ends it lets the next one begin.
func TestDumpsEnd(t *testing.T) {
	x := mustNew(t, onePlace(0))
	storeAt(t, x, 0, 0, nil, drawnKeys(1, 100))
	failed := errors.New("no space")
	err := x.Dump(t.Context(), DumpOptions{}, func(*DumpRecord) error {
		require.ErrorIs(t, x.Dump(t.Context(), DumpOptions{}, nil), ErrDumping)
		return failed
	})
	require.Equal(t, failed, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, x.Dump(ctx, DumpOptions{}, nil), context.Canceled)
	require.Len(t, dumpRecords(t, x), 1)
	require.Empty(t, dumpRecords(t, mustNew(t, onePlace(0))))
}

// A throttled dump has the same records.
func TestThrottledDump(t *testing.T) {
	x := mustNew(t, onePlace(0))
	for i := range 40 {
		storeAt(t, x, 0, 0, nil, drawnKeys(byte(i), 2000))
	}
	n := 0
	require.NoError(t, x.Dump(t.Context(), DumpOptions{Throttle: true}, func(r *DumpRecord) error {
		n += len(r.Keys) / 32
		return nil
	}))
	require.EqualValues(t, x.entries, n)
}

// A dump ends although lookups find everything again and again, and copies what they find at most twice: before
// it was used, and after.
func TestDumpEndsWhileLookupsGoOn(t *testing.T) {
	x, keys := mustNew(t, onePlace(0)), drawnKeys(1, 64*200)
	for i := range 200 {
		storeAt(t, x, 0, 0, nil, cut(keys, i*64, (i+1)*64))
	}
	rng, copied := rand.New(rand.NewPCG(1, 1)), map[string]int{}
	for _, r := range dumpBetween(t, x, func() {
		x.dump.left = min(x.dump.left, 40_000) // three times the keys, in place of a million
		for range 3 {                          // more than a hold copies
			i := rng.IntN(200)
			probe(x, cut(keys, i*64, (i+1)*64), 32, 64, false)
		}
		x.applyTouches(touchBatch)
	}) {
		copied[string(r.Keys[:32])]++
	}
	require.Len(t, copied, 200)
	for _, n := range copied {
		require.LessOrEqual(t, n, 2)
	}
}

// A dump ends also if more is stored between its holds than one of them copies.
func TestDumpEndsWhileStoresGoOn(t *testing.T) {
	x, keys := mustNew(t, onePlace(1000)), drawnKeys(1, 10_000)
	storeAt(t, x, 0, 0, nil, cut(keys, 0, 1000))
	d, err := x.beginDump()
	require.NoError(t, err)
	d.left, d.hold = 5000, workPerCall+1
	at, n := 0, 0
	for done := false; !done; at = (at + 200) % 9000 {
		storeAt(t, x, 0, 0, nil, cut(keys, at, at+100))
		storeAt(t, x, 0, 0, nil, cut(keys, at+100, at+200))
		done, err = x.dumpSome(d)
		require.NoError(t, err)
		n++
		require.Less(t, n, 5000)
	}
	require.LessOrEqual(t, d.left, int64(0), "it came to the end")
}

// A dump that more is evicted from than it can keep up with fails, and frees what it had of that.
func TestDumpFallsBehind(t *testing.T) {
	x, keys := mustNew(t, onePlace(0)), drawnKeys(1, mostRemovals/32)
	storeAt(t, x, 0, 0, nil, cut(keys, 0, 1000))
	d, err := x.beginDump()
	require.NoError(t, err)
	evict(t, x, 0, cut(keys, 0, len(keys)/64), 32)
	require.False(t, d.overflow)
	require.Greater(t, d.bytes, len(keys)/2)
	evict(t, x, 0, cut(keys, len(keys)/64, len(keys)/32), 32)
	require.Equal(t, removals{overflow: true}, d.removals)
	x.Reset()
	require.NoError(t, x.ResetPlaces([]int{0}))
	require.Equal(t, removals{overflow: true}, d.removals)
	_, err = x.dumpSome(d)
	require.ErrorIs(t, err, ErrDumpBehind)
	x.endDump()
	require.Empty(t, dumpRecords(t, x))
}

// An index with a smaller bound keeps what was used last.
func TestLoadIntoASmallerIndex(t *testing.T) {
	x, keys := mustNew(t, onePlace(0)), drawnKeys(1, 10_000)
	useSome(t, x, keys, rand.New(rand.NewPCG(1, 1)))
	x.policy.bonus = 0.5
	const bound = 2000
	y := loadInto(t, mustNew(t, onePlace(bound)), dumpRecords(t, x))
	require.Greater(t, x.entries, int64(2*bound))
	order := evictionOrder(x)
	kept := evictionOrder(y)
	require.InDelta(t, bound, len(kept), batchKeys)
	missing := 0
	for _, key := range order[len(order)-len(kept):] {
		missing += which(!slices.Contains(kept, key))
	}
	// What is hot is kept by a bonus in lifetimes, which are shorter here.
	require.LessOrEqual(t, missing, bound/4)
}

// What was not used for more than half of the clock's range is still the oldest after a load.
func TestLoadLongIdle(t *testing.T) {
	x, keys := mustNew(t, onePlace(0)), drawnKeys(1, 1000)
	storeAt(t, x, 0, 0, nil, cut(keys, 0, 100))
	x.policy.clock += 1<<31 + 1<<20 // entries that were stored and evicted meanwhile
	for i := 100; i < 1000; i += 100 {
		storeAt(t, x, 0, 0, nil, cut(keys, i, i+100))
		if i%200 == 0 {
			probe(x, cut(keys, i, i+100), 32, 1024, false)
			for !x.applyTouches(touchBatch) {
				continue
			}
		}
	}
	y := loadInto(t, mustNew(t, onePlace(0)), dumpRecords(t, x))
	require.Equal(t, evictionOrder(x), evictionOrder(y))
}

// Lookups by anchors follow the links of a loaded index once lookups have confirmed them, and not before.
func TestTraceAfterLoad(t *testing.T) {
	x, keys := mustNew(t, manyPlaces(0, 2)), drawnKeys(1, 6000)
	for _, from := range []int{4000, 2000, 0} { // in three pieces, the last one oldest
		storeAt(t, x, 0, uint32(from), cut(keys, max(from-1, 0), from), cut(keys, from, from+2000))
	}
	for i := 0; i < 6000; i += 100 {
		require.NoError(t, x.Store(&Writer{}, []int{1}, cut(keys, i, i+10), 32))
	}
	require.True(t, confirm(x, 0, nil, keys, 32))
	y := loadInto(t, mustNew(t, manyPlaces(0, 2)), dumpRecords(t, x))
	var a, b Trail
	last := cut(keys, 5999, 6000)
	require.EqualValues(t, 6000, traceAll(y, &b, last, 5999))
	require.True(t, confirm(y, 0, nil, keys, 32))
	require.Zero(t, traceAll(y, &b, last, 5999))
	require.Zero(t, traceAll(x, &a, last, 5999))
	require.Equal(t, sortedRuns(a), sortedRuns(b))
}

// sortedRuns tells the runs of a trace, joined where they have one set of places.
func sortedRuns(t Trail) (runs []string) {
	for _, r := range t.Runs {
		for i := r.N; i > 0; i-- {
			runs = append(runs, fmt.Sprint(r.From+i-1, setOf(r.Coverage.places)))
		}
	}
	return runs
}

// A dump of an index that many goroutines change is loaded without an error.
func TestDumpOfABusyIndex(t *testing.T) {
	x, keys := mustNew(t, manyPlaces(0, 2)), drawnKeys(1, 40_000)
	storeAt(t, x, 0, 0, nil, keys)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for {
				select {
				case <-stop:
					return
				default:
				}
				from := rng.IntN(39_000)
				part := cut(keys, from, from+1+rng.IntN(200))
				switch rng.IntN(20) {
				case 0:
					_ = x.ResetPlaces([]int{rng.IntN(2)})
				case 1, 2, 3, 4:
					_, _ = x.Evict(rng.IntN(2), part, 32)
				case 5, 6, 7:
					_ = x.Store(&Writer{}, []int{rng.IntN(2)}, part, 32)
				default:
					probe(x, part, 32, 64, false)
				}
			}
		}()
	}
	for dumps := 0; dumps < 5; {
		var records []DumpRecord
		err := x.Dump(t.Context(), DumpOptions{}, func(r *DumpRecord) error {
			records = append(records, r.clone())
			return nil
		})
		if errors.Is(err, ErrDumpBehind) { // the others had the CPUs for long
			continue
		}
		require.NoError(t, err)
		loadInto(t, mustNew(t, manyPlaces(0, 2)), records)
		dumps++
	}
	close(stop)
	wg.Wait()
	checkBooks(t, x)
}
