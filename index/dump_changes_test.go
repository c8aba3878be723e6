package index

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// changing is an index that is changed while it is dumped, beside a slow model: which places hold each
// key, and which would if none had been evicted to make room.
type changing struct {
	x     *Index
	keys  []byte
	rng   *rand.Rand
	model []map[int]bool
	reset *placesReset // under way, or nil
	lost  []int        // by reset
}

func newChanging(t testing.TB, cfg Config, seed uint64) *changing {
	const n = 9000
	c := &changing{x: mustNew(t, cfg), keys: drawnKeys(byte(seed), n), rng: rand.New(rand.NewPCG(seed, 2))}
	c.clearModel()
	return c
}

func (c *changing) clearModel() {
	c.model = make([]map[int]bool, len(c.keys)/32)
	for i := range c.model {
		c.model[i] = map[int]bool{}
	}
}

// removeFrom removes all keys from some places of the model.
func (c *changing) removeFrom(places []int) {
	for _, held := range c.model {
		for _, p := range places {
			delete(held, p)
		}
	}
}

// change is a random change, or a lookup. Resets of places go on for some changes.
func (c *changing) change(t testing.TB, resets bool) {
	n := len(c.model)
	from := c.rng.IntN(n)
	to := from + 1 + c.rng.IntN(min(n-from, 1+c.rng.IntN(300)))
	place := c.rng.IntN(c.x.places)
	switch kind := c.rng.IntN(40); {
	case kind < 16:
		storeAt(t, c.x, place, cut(c.keys, from, to))
		for i := from; i < to; i++ {
			c.model[i][place] = true
		}
	case kind < 26:
		_, err := c.x.Evict(place, cut(c.keys, from, to), 32)
		require.NoError(t, err)
		for i := from; i < to; i++ {
			delete(c.model[i], place)
		}
	case kind < 36:
		probe(c.x, cut(c.keys, from, to), 32, 64, false)
	case !resets:
	case c.reset != nil:
		if resetHold(c.x, c.reset) {
			c.removeFrom(c.lost)
			c.reset = nil
		}
	case kind < 39:
		c.lost = []int{place}
		c.reset = beginReset(t, c.x, c.lost...)
	case c.rng.IntN(20) == 0:
		c.x.Reset()
		c.clearModel()
	}
}

// A dump that is loaded holds nothing that was removed before the dump's last hold, whatever happens
// between its holds. Without resets it holds all that was there all the time.
func TestDumpOfAChangingIndex(t *testing.T) {
	seeds := uint64(24)
	if testing.Short() || raceEnabled {
		seeds = 8
	}
	for seed := range seeds {
		cfg := manyPlaces(0, 1+int(seed%3))
		resets := seed%2 == 1
		if seed%4 >= 2 {
			cfg.MaxEntries = 3000
		}
		c := newChanging(t, cfg, seed)
		for range 100 {
			c.change(t, false)
		}
		before := held(c.x, c.keys)
		was := c.copyModel()
		records := dumpBetween(t, c.x, func() {
			if c.rng.IntN(4) == 0 { // most holds see no change, so the dump ends
				c.change(t, resets)
				c.intersect(was)
			}
		})
		after := held(c.x, c.keys)
		y := loadInto(t, mustNew(t, cfg), records)
		for i, got := range held(y, c.keys) {
			loaded := setOf(got)
			for _, p := range loaded {
				if !c.model[i][p] || cfg.MaxEntries == 0 && !slices.Contains(setOf(after[i]), p) {
					t.Fatalf("seed %d: key %d was removed from place %d", seed, i, p)
				}
			}
			for _, p := range setOf(before[i]) {
				if cfg.MaxEntries == 0 && !resets && was[i][p] && !slices.Contains(loaded, p) {
					t.Fatalf("seed %d: key %d is missing at place %d", seed, i, p)
				}
			}
		}
		checkBooks(t, c.x)
	}
}

// copyModel returns a copy of the model.
func (c *changing) copyModel() (was []map[int]bool) {
	for _, held := range c.model {
		was = append(was, maps.Clone(held))
	}
	return was
}

// intersect removes from an earlier copy what the model no longer has.
func (c *changing) intersect(was []map[int]bool) {
	for i, held := range was {
		for p := range held {
			if !c.model[i][p] {
				delete(held, p)
			}
		}
	}
}

// Each kind of removal between two holds of a dump is repeated by the load, also of what the index itself
// has evicted in between.
func TestDumpRepeatsRemovals(t *testing.T) {
	keys, others := drawnKeys(1, 6000), drawnKeys(2, 6000)
	for name, c := range map[string]struct {
		remove func(t *testing.T, x *Index)
		gone   func(i, place int) bool
	}{
		"an evict": {
			remove: func(t *testing.T, x *Index) { evict(t, x, 0, keys, 32) },
			gone:   func(_, place int) bool { return place == 0 },
		},
		"an evict of what is evicted": {
			remove: func(t *testing.T, x *Index) {
				storeAt(t, x, 1, others)
				require.Less(t, evict(t, x, 0, cut(keys, 0, 3000), 32), 3000)
			},
			gone: func(i, place int) bool { return place == 0 && i < 3000 },
		},
		"a reset of a place": {
			remove: func(t *testing.T, x *Index) { require.NoError(t, x.ResetPlaces([]int{1})) },
			gone:   func(_, place int) bool { return place == 1 },
		},
		"a reset under way": {
			remove: func(t *testing.T, x *Index) { require.False(t, resetHold(x, beginReset(t, x, 1))) },
			gone:   func(_, place int) bool { return place == 1 },
		},
		"a reset of all": {
			remove: func(t *testing.T, x *Index) {
				x.Reset()
				storeAt(t, x, 0, others)
			},
			gone: func(int, int) bool { return true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := manyPlaces(0, 2)
			cfg.MaxEntries = 7000
			x := mustNew(t, cfg)
			for from := 0; from < 6000; from += 60 {
				storeAt(t, x, 0, cut(keys, from, from+60))
				storeAt(t, x, 1, cut(keys, from, from+60))
			}
			holds := 0
			records := dumpBetween(t, x, func() {
				if holds++; holds == 80 {
					c.remove(t, x)
				}
			})
			require.GreaterOrEqual(t, holds, 80)
			copied := 0
			for i, set := range held(loadInto(t, mustNew(t, cfg), records), keys) {
				for _, place := range setOf(set) {
					copied++
					require.False(t, c.gone(i, place), "key %d at place %d", i, place)
				}
			}
			require.Equal(t, name == "a reset of all", copied == 0)
		})
	}
}
