package index

import (
	"fmt"
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
	reset PlacesReset
	lost  []int // by reset, which is under way
}

func newChanging(t testing.TB, cfg Config, seed uint64) *changing {
	const n = 9000
	c := &changing{x: mustNew(t, cfg), keys: drawnKeys(byte(seed), n), rng: rand.New(rand.NewPCG(seed, 2))}
	c.forgetAll()
	return c
}

func (c *changing) forgetAll() {
	c.model = make([]map[int]bool, len(c.keys)/32)
	for i := range c.model {
		c.model[i] = map[int]bool{}
	}
}

// removeFrom makes the model forget all that some places hold.
func (c *changing) removeFrom(places []int) {
	for _, held := range c.model {
		for _, p := range places {
			delete(held, p)
		}
	}
}

// change is a random change, or a lookup. Resets of places go on for some changes, and some are given up.
func (c *changing) change(t testing.TB, resets bool) {
	n := len(c.model)
	from := c.rng.IntN(n)
	to := from + 1 + c.rng.IntN(min(n-from, 1+c.rng.IntN(300)))
	place := c.rng.IntN(c.x.places)
	switch kind := c.rng.IntN(40); {
	case kind < 16:
		storeAt(t, c.x, place, uint32(from), cut(c.keys, max(from-1, 0), from), cut(c.keys, from, to))
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
	case c.reset.index != nil && c.rng.IntN(8) == 0:
		c.reset.End() // the model keeps what it has not come to
	case c.reset.index != nil:
		if c.reset.Step(1) {
			c.removeFrom(c.lost)
		}
	case kind < 39:
		c.lost = []int{place}
		require.NoError(t, c.x.BeginResetPlaces(&c.reset, c.lost))
	case c.rng.IntN(20) == 0:
		c.x.Reset()
		c.forgetAll()
	}
}

// A dump that is loaded holds nothing that was removed before the dump's last hold, whatever happens
// between its holds. Without resets it holds all that was there all the time.
func TestDumpOfAChangingIndex(t *testing.T) {
	for seed := range uint64(24) {
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
		was := c.snapshot()
		records := dumpBetween(t, c.x, func() {
			if c.rng.IntN(4) == 0 { // fewer spans come than go
				c.change(t, resets)
				c.keep(was)
			}
		})
		after := held(c.x, c.keys)
		y := loadInto(t, mustNew(t, cfg), records)
		for i, got := range held(y, c.keys) {
			key := fmt.Sprintf("seed %d, key %d", seed, i)
			for _, p := range setOf(got) {
				require.True(t, c.model[i][p], "%s was removed from place %d", key, p)
			}
			if cfg.MaxEntries > 0 {
				continue
			}
			for w := range got {
				require.Zero(t, got[w]&^wordOf(after[i], w), "%s was not at %b", key, got[w])
			}
			for _, p := range setOf(before[i]) {
				require.True(t, resets || !was[i][p] || slices.Contains(setOf(got), p), "%s is missing at place %d", key, p)
			}
		}
		checkBooks(t, c.x)
	}
}

func wordOf(set []uint64, w int) uint64 {
	if set == nil {
		return 0
	}
	return set[w]
}

// snapshot copies the model, and keep removes from the copy what the model no longer has.
func (c *changing) snapshot() (was []map[int]bool) {
	for _, held := range c.model {
		was = append(was, maps.Clone(held))
	}
	return was
}

func (c *changing) keep(was []map[int]bool) {
	for i, held := range was {
		for p := range held {
			if !c.model[i][p] {
				delete(held, p)
			}
		}
	}
}
