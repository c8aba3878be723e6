package index

import (
	"context"

	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

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
