package index

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// held returns the places that hold each key.
func held(x *Index, keys []byte) [][]uint64 {
	sets := make([][]uint64, len(keys)/32)
	for i := range sets {
		if s := x.find(x.hash(cut(keys, i, i+1)), cut(keys, i, i+1)); s != noSlot {
			seg, j := x.at(s)
			sets[i] = x.coverage[seg.class[j]].places
		}
	}
	return sets
}

// storeSome stores stretches of keys to places.
func storeSome(t *testing.T, x *Index, keys []byte, places int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 40 {
		place, n := rng.IntN(places), len(keys)/32
		from := rng.IntN(n)
		storeAt(t, x, place, cut(keys, from, from+1+rng.IntN(n-from)))
	}
}

// beginReset begins a reset of places, for resetHold.
func beginReset(t testing.TB, x *Index, places ...int) *placesReset {
	r, err := x.beginReset(places)
	require.NoError(t, err)
	return r
}

// resetHold is one hold of the lock of writers in ResetPlaces.
func resetHold(x *Index, r *placesReset) (done bool) {
	x.writing.Lock()
	defer x.writing.Unlock()
	return x.resetSome(r)
}

// A reset of places leaves what an evict of every key from each of them leaves.
func TestResetPlacesIsEvictOfAll(t *testing.T) {
	SkipSlow(t)
	for _, places := range []int{1, 5, 200} {
		for seed := range uint64(8) {
			keys := drawnKeys(byte(seed), 6000)
			a, b := mustNew(t, manyPlaces(0, places)), mustNew(t, manyPlaces(0, places))
			storeSome(t, a, keys, places, seed)
			storeSome(t, b, keys, places, seed)
			var lost []int
			for p := range places {
				if rand.New(rand.NewPCG(seed, uint64(p))).IntN(3) == 0 {
					lost = append(lost, p)
				}
			}
			require.NoError(t, a.ResetPlaces(lost))
			for _, p := range lost {
				_, err := b.Evict(p, keys, 32)
				require.NoError(t, err)
			}
			require.Equal(t, held(b, keys), held(a, keys))
			require.Equal(t, b.Stats().Entries, a.Stats().Entries)
			require.Equal(t, b.Stats().Evicted, a.Stats().Evicted)
			require.Zero(t, a.resetting)
			checkBooks(t, a)
			storeSome(t, a, keys, places, seed+1)
			checkBooks(t, a)
		}
	}
}

const holdsChain = 8192 // keys of a chain

// eachChain calls do with the chains that keys are.
func eachChain(keys []byte, do func(keys []byte)) {
	for ; len(keys) > 0; keys = keys[min(holdsChain*32, len(keys)):] {
		do(keys[:min(holdsChain*32, len(keys))])
	}
}

// Groups of slots that all keep another place have one class and one digest again.
func TestResetPlacesKeepsGroups(t *testing.T) {
	x, keys := mustNew(t, manyPlaces(0, 3)), drawnKeys(1, segmentSlots)
	for p := range 3 {
		storeAt(t, x, p, keys)
	}
	require.NoError(t, x.ResetPlaces([]int{0, 2}))
	for _, id := range x.segments[0].groupClass {
		require.NotEqual(t, noClass, id)
	}
	checkBooks(t, x)
	require.EqualValues(t, segmentSlots, x.Stats().Entries)
}

// What other stores would move is met by a reset under way.
func TestResetPlacesMeetsWhatIsStoredAgain(t *testing.T) {
	x, keys := mustNew(t, manyPlaces(0, 2)), drawnKeys(1, 2*segmentSlots)
	storeAt(t, x, 0, keys)
	_, err := x.Evict(0, cut(keys, 0, 1024), 32) // free slots at the beginning of the log
	require.NoError(t, err)
	r := beginReset(t, x, 0)
	for r.at < segmentSlots {
		require.False(t, resetHold(x, r))
	}
	last := cut(keys, segmentSlots, 2*segmentSlots)
	rng := rand.New(rand.NewPCG(1, 1))
	var mixed []byte
	for _, i := range rng.Perm(segmentSlots) {
		mixed = append(mixed, cut(last, i, i+1)...)
	}
	storeAt(t, x, 1, mixed) // scattered all over the segment
	for !resetHold(x, r) {
		continue
	}
	for _, set := range held(x, last) {
		require.Equal(t, []uint64{2}, set)
	}
	checkBooks(t, x)
}

// A hold of the lock changes at most a group of slots. A reset of all ends the reset of places.
func TestResetPlacesInHolds(t *testing.T) {
	x, keys := mustNew(t, manyPlaces(0, 2)), drawnKeys(1, 4*segmentSlots)
	storeAt(t, x, 0, keys)
	require.ErrorIs(t, x.ResetPlaces([]int{0, 2}), ErrPlace)
	require.ErrorIs(t, x.ResetPlaces([]int{-1}), ErrPlace)
	r := beginReset(t, x, 0)
	for n := int64(1); n <= 4*segmentSlots/groupSlots/2; n++ {
		require.False(t, resetHold(x, r))
		require.Equal(t, 4*segmentSlots-n*groupSlots, x.Stats().Entries)
	}
	x.Reset()
	storeAt(t, x, 0, keys)
	require.True(t, resetHold(x, r))
	require.Zero(t, x.resetting)
	require.EqualValues(t, 4*segmentSlots, x.Stats().Entries)
	checkBooks(t, x)
}

// Stores go on while places are reset.
func TestStoresDuringResetPlaces(t *testing.T) {
	const entries = 1 << 19
	x, keys, other := mustNew(t, manyPlaces(0, 2)), drawnKeys(1, entries), drawnKeys(2, 1)
	eachChain(keys, func(c []byte) { storeAt(t, x, 0, c) })
	done := make(chan error)
	go func() { done <- x.ResetPlaces([]int{0}) }()
	var longest time.Duration
	for stores := 0; ; {
		select {
		case err := <-done:
			require.NoError(t, err)
			require.EqualValues(t, 1, x.Stats().Entries)
			require.Greater(t, stores, 20)
			t.Logf("%d stores meanwhile, the longest took %s", stores, longest)
			return
		default:
			begun := time.Now()
			storeAt(t, x, 1, other)
			longest = max(longest, time.Since(begun))
			if n := x.Stats().Entries; 1 < n && n < entries {
				stores++
			}
		}
	}
}

// An entry that needs a class where none can be had is gone.
func TestResetPlacesWithoutClasses(t *testing.T) {
	x, keys := mustNew(t, manyPlaces(0, 3)), drawnKeys(1, segmentSlots)
	for p := range 3 {
		storeAt(t, x, p, keys)
	}
	for _, id := range x.classes.idle {
		if x.classes.use[id].idle = false; x.classes.use[id].entries == 0 {
			x.classes.freeClass(id)
		}
	}
	x.classes.idle = nil
	budget := x.classes.budget
	x.classes.budget = 0
	require.NoError(t, x.ResetPlaces([]int{0}))
	require.Zero(t, x.Stats().Entries)
	x.classes.budget = budget
	checkBooks(t, x)
}

// Entries that all have a class of their own, of many places, take more than one hold.
func TestResetPlacesOfManyClasses(t *testing.T) {
	const numPlaces, lost = 4096, 2048
	x, keys := mustNew(t, manyPlaces(0, numPlaces)), drawnKeys(1, groupSlots)
	places := make([]int, lost, lost+1)
	for p := range places {
		places[p] = p
	}
	for i := range groupSlots {
		require.NoError(t, x.Store(&Writer{}, append(places, lost+i), cut(keys, i, i+1), 32))
	}
	r := beginReset(t, x, places...)
	holds := 0
	for ; r.at < groupSlots; holds++ {
		require.False(t, resetHold(x, r))
	}
	require.Greater(t, holds, groupSlots/4)
	for !resetHold(x, r) {
		continue
	}
	for i, set := range held(x, keys) {
		want := make([]uint64, numPlaces/64)
		want[lost/64+i/64] = 1 << (i % 64)
		require.Equal(t, want, set)
	}
	checkBooks(t, x)
}
