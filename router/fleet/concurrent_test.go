package fleet

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/router/events"
)

// Many goroutines ask while others store, remove, clear, close, predict, copy and sweep. Blocks that no one changes
// are found by every query, and blocks that no one has are not. At the memory bound holders shrink meanwhile.
func TestConcurrentUse(t *testing.T) {
	t.Run("unbounded", func(t *testing.T) { useConcurrently(t, 0) })
	t.Run("bounded", func(t *testing.T) { useConcurrently(t, 500_000) })
}

func useConcurrently(t *testing.T, maxBytes int64) {
	rng := newRand(14)
	const blocks = 600
	shared, never := randomHashes(rng, blocks), randomHashes(rng, 10)
	var clock atomic.Int64
	f, holders := newTestFleet(t, Config{MaxBytes: maxBytes, PredictTTL: 4 * time.Second, now: func() time.Time { return time.Unix(0, clock.Load()) }}, 6)
	storeAll(t, holders[0], shared) // is never changed
	rounds := 60
	if lookuptest.Race {
		rounds = 20
	}
	var writers, readers sync.WaitGroup
	var stop atomic.Bool
	for i, h := range holders[1:] {
		writers.Go(func() { changeHolder(t, f, h, uint64(i), rounds, &clock) })
	}
	for i := range 3 {
		readers.Go(func() {
			rng := newRand(uint64(i))
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
				if maxBytes == 0 && (!assert.NotEmpty(t, r.Holders) || !assert.Equal(t, holders[0].id, r.Holders[0].ID)) {
					return
				}
				for _, p := range r.Holders {
					for _, m := range p.Media {
						isOwn := len(m.Medium) > 3 && m.Medium[3:] == p.ID.Engine
						assert.True(t, isOwn || m.Medium == "GPU" || m.Medium == Predicted, "%s of %s", m.Medium, p.ID.Engine)
					}
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
	f.collect(noPause)
	checkCore(t, f)
	dropped := int64(0)
	for _, h := range f.holders {
		n := h.Dropped()
		dropped += n
	}
	assert.Equal(t, maxBytes > 0, dropped > 0)
}

// changeHolder changes a holder in some rounds. It adds it again if it has closed it.
func changeHolder(t *testing.T, f *Fleet, h *Holder, seed uint64, rounds int, clock *atomic.Int64) {
	shared := randomHashes(newRand(14), 600)
	rng := newRand(100 + seed)
	for range rounds {
		own := randomHashes(rng, 1500)
		held := make([]bool, 1500)
		for _, b := range []events.Blocks{
			{Tier: gpu, Hashes: own}, {Tier: gpu, Hashes: slice(shared, 0, 300)},
			{Tier: events.Tier{Medium: "CPU"}, Hashes: own},
			{Tier: events.Tier{Medium: fmt.Sprintf("%03d%s", rng.IntN(5), h.id.Engine)}, Hashes: slice(shared, 0, 300)},
		} {
			assert.NoError(t, h.Store(&b, held))
		}
		if err := h.Predict(t.Context(), slice(shared, 0, 400)); f.cfg.MaxBytes == DefaultMaxBytes || err != nil && !errors.Is(err, ErrFull) {
			assert.NoError(t, err)
		}
		clock.Add(int64(100 * time.Millisecond))
		switch rng.IntN(6) {
		case 0:
			h.Clear()
		case 1:
			h.Close()
			h = addHolder(t, f, h.id.Engine)
		case 2:
			h.SetStale(true)
			f.Snapshot()
			h.SetStale(false)
		case 3:
			f.collect(noPause)
		default:
			assert.NoError(t, h.Remove(&events.Blocks{Group: events.NoGroup, Hashes: own}))
		}
	}
}
