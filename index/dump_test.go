package index

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// clone copies a record, which is valid during a call only.
func (r *DumpRecord) clone() DumpRecord {
	c := *r
	c.Places, c.Keys = slices.Clone(r.Places), slices.Clone(r.Keys)
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
	for done := false; !done; {
		meanwhile()
		done, err = x.dumpSome(d, 1)
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
	for i := range records {
		require.NoError(t, x.Load(&records[i]))
	}
	checkBooks(t, x)
	st := x.Stats()
	require.Zero(t, st.Stored+st.Evicted+st.Refused)
	return x
}

// evictionOrder evicts all entries and returns the keys.
func evictionOrder(x *Index) (keys []string) {
	all := &Writer{use: noUse - 1} // no row was used at that time
	for row, _ := x.oldestRow(all); row != noSlot; row, _ = x.oldestRow(all) {
		seg, i := x.at(row)
		for at, n := range seg.used.runs(i, i+rowSlots) {
			keys = append(keys, split(seg.records(at, n), x.hashLen)...)
		}
		x.evictOldest(1, all)
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
			storeAt(t, x, rng.IntN(x.places), part)
		}
	}
	for !x.applyTouches(touchBatch) { // a dump does so, too
		continue
	}
}

// A loaded index has the same entries as the one that was dumped in peace, and evicts them in the same order, but
// for neighbours.
func TestDumpOfAQuietIndex(t *testing.T) {
	SkipSlow(t)
	for seed := range uint64(6) {
		for _, places := range []int{1, 3, 100} {
			rng := rand.New(rand.NewPCG(seed, 1))
			cfg, keys := manyPlaces(0, places), drawnKeys(byte(seed), 12_000)
			if seed%2 == 1 {
				cfg.MaxEntries = 9000
			}
			x := mustNew(t, cfg)
			useSome(t, x, keys, rng)
			y := loadInto(t, mustNew(t, cfg), dumpRecords(t, x))
			require.Equal(t, held(x, keys), held(y, keys))
			sameOrder(t, x, y)
		}
	}
}

// sameOrder evicts all entries of two indexes with the same entries, and requires that each goes at about the same
// time.
func sameOrder(t testing.TB, x, y *Index) {
	t.Helper()
	a, b := evictionOrder(x), evictionOrder(y)
	at := map[string]int{}
	for i, key := range b {
		at[key] = i
	}
	apart := 0
	for i, key := range a {
		j, ok := at[key]
		require.True(t, ok)
		apart += max(i-j, j-i)
	}
	require.LessOrEqual(t, apart, len(a)*len(a)/20, "in the mean a 20th of all")
}

// One dump is under way at a time, and whatever ends it lets the next one begin.
func TestDumpsEnd(t *testing.T) {
	x := mustNew(t, onePlace(0))
	storeAt(t, x, 0, drawnKeys(1, 100))
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
		storeAt(t, x, 0, drawnKeys(byte(i), 2000))
	}
	n := 0
	require.NoError(t, x.Dump(t.Context(), DumpOptions{Throttle: true}, func(r *DumpRecord) error {
		n += len(r.Keys) / 32
		return nil
	}))
	require.EqualValues(t, x.entries, n)
}

// A dump that more is evicted from than it can keep up with fails, and frees what it had of that.
func TestDumpFallsBehind(t *testing.T) {
	x, keys := mustNew(t, onePlace(0)), drawnKeys(1, maxRemovals/32)
	storeAt(t, x, 0, cut(keys, 0, 1000))
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
	_, err = x.dumpSome(d, dumpKeys)
	require.ErrorIs(t, err, ErrDumpBehind)
	x.endDump()
	require.Empty(t, dumpRecords(t, x))
}

// An index with a smaller bound keeps what was used last.
func TestLoadIntoASmallerIndex(t *testing.T) {
	x, keys := mustNew(t, onePlace(0)), drawnKeys(1, 10_000)
	useSome(t, x, keys, rand.New(rand.NewPCG(1, 1)))
	const bound = 2000
	y := loadInto(t, mustNew(t, onePlace(bound)), dumpRecords(t, x))
	require.Greater(t, x.entries, int64(2*bound))
	order := evictionOrder(x)
	kept := evictionOrder(y)
	require.InDelta(t, bound, len(kept), batchKeys)
	missing := 0
	for _, key := range order[len(order)-len(kept):] {
		if !slices.Contains(kept, key) {
			missing++
		}
	}
	require.LessOrEqual(t, missing, bound/10)
}

// A dump of an index that many goroutines change is loaded without an error.
func TestDumpOfABusyIndex(t *testing.T) {
	x, keys := mustNew(t, manyPlaces(0, 2)), drawnKeys(1, 40_000)
	storeAt(t, x, 0, keys)
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
