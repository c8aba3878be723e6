package index

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func manyPlaces(maxBytes int64, places int) Config {
	groups := [][]int{{}, {}}
	for p := range places {
		groups[0] = append(groups[0], p)
		if p%3 == 0 {
			groups[1] = append(groups[1], p)
		}
	}
	return Config{MaxBytes: maxBytes, Places: places, Groups: append(groups, nil)}
}

// TestClassesAreCounted stores and evicts at random places, a few keys or many at a
// time, and compares the classes with the entries.
func TestClassesAreCounted(t *testing.T) {
	SkipSlow(t)
	const places, hashLen, n = 20, 8, 400
	for seed := range uint64(8) {
		x := mustNew(t, manyPlaces(0, places))
		rng := rand.New(rand.NewPCG(seed, 1))
		keys := chain(seed, n, hashLen)
		held := make([]map[int]bool, n)
		for i := range held {
			held[i] = map[int]bool{}
		}
		for step := range 2000 {
			from := rng.IntN(n)
			to := from + 1 + rng.IntN(min(n-from, 1+rng.IntN(100)))
			place, stretch := rng.IntN(places), keys[from*hashLen:to*hashLen]
			var w Writer
			if rng.IntN(3) > 0 {
				require.NoError(t, x.Store(&w, []int{place}, stretch, hashLen))
			} else {
				evict(t, x, place, stretch, hashLen)
				place = ^place
			}
			for i := from; i < to; i++ {
				if place >= 0 {
					held[i][place] = true
				} else {
					delete(held[i], ^place)
				}
			}
			if step%500 == 499 {
				requireHeld(t, x, keys, held, hashLen)
				checkBooks(t, x)
			}
		}
		for p := range places {
			evict(t, x, p, keys, hashLen)
		}
		x.classes.budget = 0 // so that idle ones must go
		x.classes.freeIdle()
		require.Zero(t, x.classes.live, "no entry, no class")
		require.Empty(t, x.classes.byHash)
	}
}

// requireHeld compares the coverage of keys with the places that hold them.
func requireHeld(t *testing.T, x *Index, keys []byte, held []map[int]bool, hashLen int) {
	t.Helper()
	for i, places := range held {
		s := x.find(x.hash(keys[i*hashLen:(i+1)*hashLen]), keys[i*hashLen:(i+1)*hashLen])
		if len(places) == 0 {
			require.Equal(t, noSlot, s)
			continue
		}
		seg, j := x.at(s)
		cov := x.classes.coverage[seg.class[j]]
		require.Equal(t, len(places), cov.held)
		thirds := 0
		for p := range x.places {
			require.Equal(t, places[p], cov.holds(p), "key %d, place %d", i, p)
			if places[p] && p%3 == 0 {
				thirds++
			}
		}
		require.Equal(t, []uint16{uint16(len(places)), uint16(thirds), 0}, cov.Counts)
		complete := uint64(0b100) // the group that requires no place
		if len(places) == x.places {
			complete |= 1
		}
		if thirds == (x.places+2)/3 {
			complete |= 2
		}
		require.Equal(t, complete, cov.Complete)
	}
}

// TestClassesKeepToTheirBudget gives each entry a set of places of its own, until no more
// are made. What others store then still works, and all is well again once the entries
// are gone.
func TestClassesKeepToTheirBudget(t *testing.T) {
	SkipSlow(t)
	const hashLen = 16
	for _, places := range []int{64, 1000} {
		t.Run(fmt.Sprintf("places=%d", places), func(t *testing.T) {
			x := mustNew(t, manyPlaces(4<<20, places))
			rng := rand.New(rand.NewPCG(1, 2))
			keys := chain(1, 4000, hashLen)
			refused := int64(0)
			for i := 0; i < len(keys); i += hashLen {
				for range 3 {
					var w Writer
					if err := x.Store(&w, []int{rng.IntN(places)}, keys[i:i+hashLen], hashLen); err != nil {
						require.ErrorIs(t, err, ErrClasses)
						refused++
					}
				}
				require.LessOrEqual(t, x.classes.bytes(), x.classes.budget)
			}
			require.Positive(t, refused)
			require.Equal(t, refused, x.Stats().Refused)
			require.Greater(t, x.classes.bytes(), x.classes.budget/2-64<<10, "the budget is used")
			checkBooks(t, x)
			for p := range places {
				evict(t, x, p, keys, hashLen) // which may need a class, too
			}
			require.Zero(t, x.Stats().Entries)
			others := chain(2, 100, hashLen)
			for p := range 10 {
				var w Writer
				require.NoError(t, x.Store(&w, []int{p}, others, hashLen))
			}
			checkBooks(t, x)
		})
	}
}

// TestClassesOfABatch has batches whose 64 keys need 64 new classes, while the list of
// idle ones is full and the budget nearly used: none may go before its entry has it.
func TestClassesOfABatch(t *testing.T) {
	SkipSlow(t)
	const places, hashLen = 64, 8
	x := mustNew(t, manyPlaces(0, places))
	x.classes.budget = 1 + 3*batchKeys*x.layout.bytesPerClass() + 512*bytesPerNumber
	rng := rand.New(rand.NewPCG(1, 2))
	keys := chain(1, batchKeys, hashLen)
	held := make([]map[int]bool, batchKeys)
	for i := range held { // each key has a set of its own
		held[i] = map[int]bool{i: true}
		var w Writer
		require.NoError(t, x.Store(&w, []int{i}, keys[i*hashLen:(i+1)*hashLen], hashLen))
	}
	for range 200 {
		place := rng.IntN(places)
		if rng.IntN(2) == 0 {
			var w Writer
			require.NoError(t, x.Store(&w, []int{place}, keys, hashLen))
			for i := range held {
				held[i][place] = true
			}
		} else {
			evict(t, x, place, keys, hashLen)
			for i := range held {
				delete(held[i], place)
			}
		}
		requireHeld(t, x, keys, held, hashLen)
		checkBooks(t, x)
	}
}

// TestCollidingSets finds classes whose sets have one hash.
func TestCollidingSets(t *testing.T) {
	const places, hashLen = 12, 8
	x := mustNew(t, manyPlaces(0, places))
	x.layout.secret = [2]uint64{} // every place has the hash 0
	keys := chain(1, 64, hashLen)
	held := make([]map[int]bool, 64)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range held {
		held[i] = map[int]bool{}
		for p := range places {
			if rng.IntN(2) == 0 {
				held[i][p] = true
				var w Writer
				require.NoError(t, x.Store(&w, []int{p}, keys[i*hashLen:(i+1)*hashLen], hashLen))
			}
		}
	}
	requireHeld(t, x, keys, held, hashLen)
	for p := range places / 2 {
		evict(t, x, p, keys, hashLen)
		for i := range held {
			delete(held[i], p)
		}
	}
	requireHeld(t, x, keys, held, hashLen)
	var w Writer
	require.NoError(t, x.Store(&w, []int{0}, keys[:hashLen], hashLen))
	evict(t, x, 0, keys[:hashLen], hashLen) // the class that was made last is idle, too
	budget := x.classes.budget
	x.classes.budget = 0 // so that idle ones must go
	require.NotEmpty(t, x.classes.idle)
	x.classes.freeIdle()
	require.Empty(t, x.classes.idle)
	x.classes.budget = budget
	checkBooks(t, x)
	requireHeld(t, x, keys, held, hashLen)
}
