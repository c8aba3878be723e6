package fleet

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

// lookupAround is a lookup with something done between its halves.
func lookupAround(t *testing.T, f *Fleet, first, second coordinator.Hashes, between func()) []Prefix {
	t.Helper()
	var q Query
	var r Result
	require.NoError(t, q.Begin(f, first.HashLen()))
	q.Add(first.Bytes())
	between()
	q.Add(second.Bytes())
	q.End(&r)
	return r.Holders
}

// A holder that is cleared or closed, or becomes stale, between two pieces of a query is not in its answer, even if its
// number has another holder by then.
func TestChangesDuringQuery(t *testing.T) {
	hashes := randomHashes(newRand(17), 100)
	for name, change := range map[string]func(f *Fleet, h *Holder){
		"clear": func(_ *Fleet, h *Holder) { h.Clear() },
		"close": func(_ *Fleet, h *Holder) { h.Close() },
		"stale": func(_ *Fleet, h *Holder) { h.SetStale(true) },
		"clear, and store again": func(_ *Fleet, h *Holder) {
			h.Clear()
			storeAll(t, h, hashes)
		},
		"number of another": func(f *Fleet, h *Holder) {
			h.Close()
			f.collect(noPause)
			for i := range 70 { // of these one gets the number
				storeAll(t, addHolder(t, f, fmt.Sprintf("other-%d", i)), hashes)
			}
		},
		"all close": func(f *Fleet, _ *Holder) {
			for _, s := range f.Holders() {
				f.Get(s.ID).Close()
			}
			storeAll(t, addHolder(t, f, "other"), hashes)
		},
	} {
		for _, groups := range [][]coordinator.Group{nil, {full(16), {BlockSize: 16, Variant: 1}}} {
			t.Run(fmt.Sprint(name, len(groups)), func(t *testing.T) {
				f, holders := newTestFleet(t, Config{Groups: groups}, 2)
				for _, h := range holders {
					for g := range max(1, len(groups)) {
						require.NoError(t, h.Store(&events.Blocks{Group: g, Tier: gpu, Hashes: hashes}, nil))
					}
				}
				answer := lookupAround(t, f, slice(hashes, 0, 50), slice(hashes, 50, 100), func() { change(f, holders[0]) })
				if name == "all close" {
					require.Empty(t, answer)
					return
				}
				require.Equal(t, []Prefix{{holders[1].id, 1600, []MediumPrefix{{"GPU", 1600}}}}, answer)
			})
		}
	}
}

// A query that began before a group was known does not count its blocks as those of another group.
func TestGroupLearnedDuringQuery(t *testing.T) {
	f, holders := newTestFleet(t, Config{}, 1)
	all := randomHashes(newRand(1), 64)
	first, second := slice(all, 0, 8), slice(all, 8, 64)
	storeOf(t, holders[0], 0, first, "full_attention", 0)
	answer := lookupAround(t, f, first, second, func() { storeOf(t, holders[0], 1, second, "sliding_window", 64) })
	require.EqualValues(t, 16*first.Len(), answer[0].Tokens)
}

// A group and tier that gets the number of another one during a query does not count as that one.
func TestNumberOfMediumReusedDuringQuery(t *testing.T) {
	all := randomHashes(newRand(1), 64)
	for _, groups := range []int{1, 2} {
		f, holders := newTestFleet(t, Config{}, 2)
		honest, liar := holders[0], holders[1]
		for g := range groups {
			for _, h := range holders {
				storeOf(t, h, g, all, "full_attention", 0)
			}
		}
		store := func(h *Holder, medium string) {
			for g := range groups {
				b := &events.Blocks{Group: g, Tier: events.Tier{Medium: medium}, Hashes: all, BlockSize: 16}
				require.NoError(t, h.Store(b, nil))
			}
		}
		for i := range 3 {
			store(liar, fmt.Sprint("Z", i))
		}
		want := []MediumPrefix{{"GPU", 1024}}
		answer := lookupAround(t, f, slice(all, 0, 32), slice(all, 32, 64), func() {
			liar.Close()
			store(honest, "A0")
			for i := range 5 { // more media than the query knows
				store(honest, fmt.Sprint("A", i))
			}
		})
		require.Equal(t, []Prefix{{honest.id, 1024, want}}, answer, groups)
		answer = lookupAround(t, f, all, coordinator.Hashes{}, func() {})
		require.Len(t, answer[0].Media, 6)
	}
}

// Tokens less those of the GPU are an upper bound of what must be copied there: the GPU may also have blocks after the first
// that it lacks.
func TestMediumAfterAHole(t *testing.T) {
	all := randomHashes(newRand(1), 8)
	f, holders := newTestFleet(t, Config{}, 1)
	for _, part := range []struct {
		medium      string
		first, past int
	}{{"GPU", 0, 4}, {"CPU", 4, 6}, {"GPU", 6, 8}} {
		b := &events.Blocks{Tier: events.Tier{Medium: part.medium}, Hashes: slice(all, part.first, part.past), BlockSize: 16}
		require.NoError(t, holders[0].Store(b, nil))
	}
	answer := lookupAround(t, f, all, coordinator.Hashes{}, func() {})
	require.EqualValues(t, 128, answer[0].Tokens)
	require.Contains(t, answer[0].Media, MediumPrefix{"GPU", 64})
	require.NotContains(t, answer[0].Media, MediumPrefix{"CPU", 32}, "it lacks the first block")
}

// A holder that was stale when a query read its blocks may have lost them before: only what is predicted counts.
func TestStaleDuringQuery(t *testing.T) {
	all := randomHashes(newRand(1), 16)
	for _, kinds := range [][]string{{"full_attention"}, {"sliding_window"}, {"full_attention", "sliding_window"}} {
		f, holders := newTestFleet(t, Config{}, 1)
		h := holders[0]
		for g, kind := range kinds {
			storeOf(t, h, g, all, kind, 64)
		}
		require.NoError(t, h.Predict(t.Context(), slice(all, 0, 2)))
		h.SetStale(true)
		answer := lookupAround(t, f, all, coordinator.Hashes{}, func() {
			require.NoError(t, h.Remove(&events.Blocks{Group: events.NoGroup, Hashes: slice(all, 3, 16)}))
			h.SetStale(false)
		})
		require.Equal(t, []Prefix{{h.id, 32, []MediumPrefix{{Predicted, 32}}}}, answer, kinds)
		require.EqualValues(t, 3*16, tokens(t, f, h, all), "%v: the next query", kinds)
	}
}

// A query says when no further hash is wanted.
func TestQueryEndsEarly(t *testing.T) {
	rng := newRand(18)
	hashes := randomHashes(rng, 5000)
	f, holders := newTestFleet(t, Config{}, 2)
	var q Query
	require.NoError(t, q.Begin(f, 8))
	require.False(t, q.Add(hashes.Bytes()), "nothing is held")
	storeAll(t, holders[0], slice(hashes, 0, 64))
	require.NoError(t, holders[1].Predict(t.Context(), hashes))
	require.NoError(t, q.Begin(f, 8))
	require.True(t, q.Add(hashes.Bytes()))
	require.False(t, q.Add(randomHashes(rng, 1).Bytes()))
	var r Result
	q.End(&r)
	require.Equal(t, holders[1].id, r.Holders[0].ID)
	require.EqualValues(t, 80_000, r.Holders[0].Tokens)
	require.EqualValues(t, 64*16, r.Holders[1].Tokens)
}
