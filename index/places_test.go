package index

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStoreAtSeveralPlaces stores stretches of chains at random places: in one index at all of
// them with one call, in another with a call for each. Both must hold the same, also after
// evictions.
func TestStoreAtSeveralPlaces(t *testing.T) {
	SkipSlow(t)
	const numPlaces, hashLen, n = 70, 8, 300
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		together, singly := mustNew(t, manyPlaces(0, numPlaces)), mustNew(t, manyPlaces(0, numPlaces))
		keys := chain(seed, n, hashLen)
		held := make([]map[int]bool, n)
		for i := range held {
			held[i] = map[int]bool{}
		}
		for range 300 {
			from := rng.IntN(n)
			to := from + 1 + rng.IntN(min(n-from, 1+rng.IntN(200)))
			stretch, places := keys[from*hashLen:to*hashLen], randomPlaces(rng, numPlaces)
			if rng.IntN(3) == 0 {
				for _, x := range []*Index{together, singly} {
					_, err := x.Evict(places[0], stretch, hashLen)
					require.NoError(t, err)
				}
				for i := from; i < to; i++ {
					delete(held[i], places[0])
				}
				continue
			}
			var w Writer
			require.NoError(t, together.Store(&w, places, stretch, hashLen))
			require.Equal(t, to-from, w.Stored())
			for _, place := range places {
				var w Writer
				require.NoError(t, singly.Store(&w, []int{place}, stretch, hashLen))
				for i := from; i < to; i++ {
					held[i][place] = true
				}
			}
		}
		require.Equal(t, singly.Stats().Stored, together.Stats().Stored)
		for _, x := range []*Index{together, singly} {
			requireHeld(t, x, keys, held, hashLen)
			checkBooks(t, x)
		}
	}
}

// randomPlaces returns some of the places, ascending.
func randomPlaces(rng *rand.Rand, numPlaces int) []int {
	places := rng.Perm(numPlaces)[:1+rng.IntN(1+rng.IntN(numPlaces))]
	slices.Sort(places)
	return places
}

// TestStoreAtSeveralPlacesMakesOneClass: the sets between the first and the last are not made.
func TestStoreAtSeveralPlacesMakesOneClass(t *testing.T) {
	const numPlaces, hashLen = 4096, 8
	x := mustNew(t, manyPlaces(0, numPlaces))
	places := make([]int, numPlaces)
	for p := range places {
		places[p] = p
	}
	var w Writer
	require.NoError(t, x.Store(&w, places, chain(1, 100, hashLen), hashLen))
	require.Equal(t, 1, x.classes.live)
	checkBooks(t, x)
}

// TestStoreAtSeveralPlacesWithoutClasses has keys of which some need a class and none can be
// had. The keys in front of the first such are stored at all places, the others at none.
func TestStoreAtSeveralPlacesWithoutClasses(t *testing.T) {
	SkipSlow(t)
	const numPlaces, hashLen, n = 20, 8, 200
	for _, first := range []int{0, 1, 63, 64, 100, 199} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			x := mustNew(t, manyPlaces(0, numPlaces))
			keys := chain(1, n, hashLen)
			places := []int{2, 5, 11}
			held := make([]map[int]bool, n)
			var w Writer
			require.NoError(t, x.Store(&w, places, chain(2, 1, hashLen), hashLen), "its class is there")
			for i := range held {
				held[i] = map[int]bool{}
			}
			var other Writer
			require.NoError(t, x.Store(&other, []int{7}, keys[first*hashLen:][:hashLen], hashLen))
			held[first][7] = true
			budget := x.classes.budget
			x.classes.budget = 0
			w = Writer{}
			require.ErrorIs(t, x.Store(&w, places, keys, hashLen), ErrClasses)
			x.classes.budget = budget
			require.Equal(t, first, w.Stored(), "how far it went")
			for i := range first {
				maps.Copy(held[i], map[int]bool{2: true, 5: true, 11: true})
			}
			requireHeld(t, x, keys, held, hashLen)
			checkBooks(t, x)
			require.NoError(t, x.Store(&w, places, keys[first*hashLen:], hashLen))
			require.Equal(t, n, w.Stored())
			for i := range held {
				maps.Copy(held[i], map[int]bool{2: true, 5: true, 11: true})
			}
			requireHeld(t, x, keys, held, hashLen)
			checkBooks(t, x)
		})
	}
}

// TestStoreRefusesPlaces wants places that ascend within the pool.
func TestStoreRefusesPlaces(t *testing.T) {
	x := mustNew(t, manyPlaces(0, 4))
	for _, places := range [][]int{nil, {}, {4}, {-1, 0}, {0, 4}, {1, 1}, {2, 1}} {
		var w Writer
		require.ErrorIs(t, x.Store(&w, places, chain(1, 1, 8), 8), ErrPlace, "%v", places)
		require.Zero(t, w.Stored())
	}
	require.Zero(t, x.Stats().Entries)
}

// TestStoreAtSeveralPlacesDoesNotAllocate stores again what is there.
func TestStoreAtSeveralPlacesDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	x := mustNew(t, manyPlaces(0, 16))
	keys, places := chain(1, 256, 32), []int{1, 3, 5, 7, 9}
	var w Writer
	require.Zero(t, testing.AllocsPerRun(100, func() {
		w = Writer{}
		if err := x.Store(&w, places, keys, 32); err != nil {
			t.Error(err)
		}
	}))
}
