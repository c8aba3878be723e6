package fleet

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/router/events"
)

// Many goroutines ask while others store, remove, clear, close, predict, copy and sweep. Blocks that no one changes
// are found by every query, and blocks that no one has are not.
func TestConcurrentUse(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 14))
	const blocks = 600
	shared, never := randomHashes(rng, blocks), randomHashes(rng, 10)
	var clock atomic.Int64
	f, holders := newTestFleet(t, Config{PredictTTL: 4 * time.Second, now: func() time.Time { return time.Unix(0, clock.Load()) }}, 6)
	storeAll(t, holders[0], shared) // is never changed
	rounds := 60
	if raceEnabled {
		rounds = 20
	}
	var writers, readers sync.WaitGroup
	var stop atomic.Bool
	for i, h := range holders[1:] {
		writers.Go(func() { changeHolder(t, f, h, uint64(i), rounds, &clock) })
	}
	for i := range 3 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 15))
			var q Query
			var r Result
			for !stop.Load() {
				assert.NoError(t, q.Begin(f, 8))
				for from := 0; from < blocks; {
					end := min(blocks, from+1+rng.IntN(blocks))
					q.Add(slice(shared, from, end).Bytes())
					from = end
				}
				q.Add(never.Bytes())
				q.End(&r)
				if !assert.NotEmpty(t, r.Holders) {
					return
				}
				assert.Equal(t, holders[0].id, r.Holders[0].ID)
				for _, p := range r.Holders {
					assert.LessOrEqual(t, p.Tokens, int64(blocks*16))
				}
				f.Stats()
				f.Holders()
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
	f.collect()
	checkCore(t, f)
}

// changeHolder changes a holder in some rounds. It adds it again if it has closed it.
func changeHolder(t *testing.T, f *Fleet, h *Holder, seed uint64, rounds int, clock *atomic.Int64) {
	shared := randomHashes(rand.New(rand.NewPCG(1, 14)), 600)
	rng := rand.New(rand.NewPCG(seed, 16))
	for range rounds {
		own := randomHashes(rng, 1500)
		held := make([]bool, 1500)
		for _, b := range []events.Blocks{{Tier: gpu, Hashes: own}, {Tier: gpu, Hashes: slice(shared, 0, 300)}, {Tier: events.Tier{Medium: "CPU"}, Hashes: own}} {
			assert.NoError(t, h.Store(&b, held))
		}
		assert.NoError(t, h.Predict(slice(shared, 0, 400)))
		clock.Add(int64(100 * time.Millisecond))
		switch rng.IntN(6) {
		case 0:
			h.Clear()
		case 1:
			h.Close()
			var err error
			h, err = f.Add(h.id)
			assert.NoError(t, err)
			h.SetStale(false)
		case 2:
			h.SetStale(true)
			f.Snapshot()
			h.SetStale(false)
		case 3:
			f.collect()
		default:
			assert.NoError(t, h.Remove(&events.Blocks{Group: events.NoGroup, Hashes: own}))
		}
	}
}

// A holder that is cleared or closed, or becomes stale, between two pieces of a query is not in its answer, even if its
// number has another holder by then.
func TestChangesBetweenPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 17))
	hashes := randomHashes(rng, 100)
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
			f.collect()
			for i := range 70 { // of these one gets the number
				other, err := f.Add(ID{Engine: fmt.Sprintf("other-%d", i)})
				require.NoError(t, err)
				other.SetStale(false)
				storeAll(t, other, hashes)
			}
		},
		"all close": func(f *Fleet, _ *Holder) {
			for _, s := range f.Holders() {
				f.Get(s.ID).Close()
			}
			other, err := f.Add(ID{Engine: "other"})
			require.NoError(t, err)
			other.SetStale(false)
			storeAll(t, other, hashes)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, holders := newTestFleet(t, Config{}, 2)
			for _, h := range holders {
				storeAll(t, h, hashes)
			}
			var q Query
			var r Result
			require.NoError(t, q.Begin(f, 8))
			require.True(t, q.Add(slice(hashes, 0, 50).Bytes()))
			change(f, holders[0])
			q.Add(slice(hashes, 50, 100).Bytes())
			q.End(&r)
			for _, p := range r.Holders {
				require.Equal(t, holders[1].id, p.ID)
				require.EqualValues(t, 1600, p.Tokens)
			}
		})
	}

	f, holders := newTestFleet(t, Config{}, 1)
	storeAll(t, holders[0], hashes)
	require.NoError(t, holders[0].Predict(slice(hashes, 0, 30)))
	var q Query
	var r Result
	require.NoError(t, q.Begin(f, 8))
	q.Add(slice(hashes, 0, 50).Bytes())
	holders[0].SetStale(true)
	q.Add(slice(hashes, 50, 100).Bytes())
	q.End(&r)
	require.Equal(t, []Prefix{{holders[0].id, 480, []MediumPrefix{{Predicted, 480}}}}, r.Holders)
}

// A query says when no further hash is wanted, and is reused without allocations.
func TestQueryEndsEarlyAndAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 18))
	hashes := randomHashes(rng, 5000)
	f, holders := newTestFleet(t, Config{}, 64)
	var q Query
	require.NoError(t, q.Begin(f, 8))
	require.False(t, q.Add(hashes.Bytes()), "nothing is held")
	for i, h := range holders {
		storeAll(t, h, slice(hashes, 0, (i+1)*64))
	}
	require.NoError(t, holders[3].Predict(hashes))
	require.NoError(t, q.Begin(f, 8))
	require.True(t, q.Add(hashes.Bytes()))
	require.False(t, q.Add(randomHashes(rng, 1).Bytes()))
	var r Result
	q.End(&r)
	require.Len(t, r.Holders, 64)
	require.Equal(t, Prefix{holders[3].id, 80_000, []MediumPrefix{{"GPU", 256 * 16}, {Predicted, 80_000}}}, r.Holders[0])
	require.Equal(t, holders[63].id, r.Holders[1].ID)
	if raceEnabled {
		return // sync primitives allocate
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if f.Lookup(&r, hashes) != nil || len(r.Holders) != 64 {
			t.Error("another answer")
		}
	}))
}

func TestQueryOfSeveralGroupsAllocatesNothing(t *testing.T) {
	f, holders := newTestFleet(t, Config{Groups: oracleKinds[4].groups}, 8)
	hashes := randomHashes(rand.New(rand.NewPCG(1, 19)), 3000)
	for i, h := range holders {
		for g, spec := range oracleKinds[4].groups {
			part := slice(hashes, 0, (i+1)*300)
			require.NoError(t, h.Store(&events.Blocks{Group: g, Tier: gpu, Hashes: part, SpecKind: spec.Kind.String()}, make([]bool, part.Len())))
		}
	}
	var r Result
	lookup := func() {
		if f.Lookup(&r, hashes) != nil || len(r.Holders) != 8 || r.Holders[0].Tokens != 2400*16 {
			t.Error("another answer", r.Holders)
		}
	}
	lookup()
	if !raceEnabled {
		require.Zero(t, testing.AllocsPerRun(100, lookup))
	}
}
