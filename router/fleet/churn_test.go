package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

func newTestFleet(t testing.TB, cfg Config, holders int) (*Fleet, []*Holder) {
	if cfg.BlockSize == 0 {
		cfg.BlockSize = 16
	}
	f, err := New(cfg)
	require.NoError(t, err)
	var list []*Holder
	for i := range holders {
		h, err := f.Add(ID{Engine: fmt.Sprintf("engine-%03d", i)})
		require.NoError(t, err)
		h.SetStale(false)
		list = append(list, h)
	}
	return f, list
}

// tokens returns what a holder has of some hashes.
func tokens(t testing.TB, f *Fleet, h *Holder, hashes coordinator.Hashes) int64 {
	var r Result
	require.NoError(t, f.Lookup(&r, hashes))
	for i := range r.Holders {
		if r.Holders[i].ID == h.id {
			return r.Holders[i].Tokens
		}
	}
	return 0
}

// Many blocks come and go: memory of those that are gone is reused, and all others are found.
func TestMemoryIsReused(t *testing.T) {
	const prompt, keep = 500, 60
	rng := rand.New(rand.NewPCG(1, 9))
	f, holders := newTestFleet(t, Config{}, 4)
	type stored struct {
		holder *Holder
		hashes coordinator.Hashes
	}
	var list []stored
	var most int64
	for i := range 800 {
		s := stored{holders[i%len(holders)], randomHashes(rng, prompt)}
		storeAll(t, s.holder, s.hashes)
		list = append(list, s)
		if len(list) > keep {
			at := rng.IntN(len(list))
			gone := list[at]
			list = append(list[:at], list[at+1:]...)
			require.NoError(t, gone.holder.Remove(&events.Blocks{Group: events.NoGroup, Hashes: gone.hashes}))
			require.Zero(t, tokens(t, f, gone.holder, gone.hashes))
		}
		if i == 300 {
			most = f.Stats().Bytes
		}
	}
	checkCore(t, f)
	for _, s := range list {
		require.EqualValues(t, prompt*16, tokens(t, f, s.holder, s.hashes))
	}
	s := f.Stats()
	require.EqualValues(t, keep*prompt, s.Blocks)
	require.Less(t, s.Bytes, most*3/2)
	require.Greater(t, f.core.table.depth, uint8(4))

	// Chains are still runs after compaction: the records of a prompt follow each other.
	jumps := 0
	for _, s := range list {
		next := uint32(0)
		for _, hash := range s.hashes.All() {
			pos, ok := f.core.find(key(hash, 0), next)
			require.True(t, ok)
			if pos != next {
				jumps++
			}
			next = pos + 1
		}
	}
	require.Less(t, jumps, len(list)*4)
}

// A segment that is compacted may be freed meanwhile, and its number be that of the segment that is appended to.
// Compaction then ends, instead of moving what it has moved.
func TestCompactionEndsIfItsSegmentIsFreed(t *testing.T) {
	f, holders := newTestFleet(t, Config{}, 1)
	storeAll(t, holders[0], randomHashes(newRand(7), 100))
	c := f.core
	c.collection.compacting, c.collection.segment, c.collection.moved = true, c.log.tailNum, 0
	require.True(t, c.collectStep(false))
	require.False(t, c.collectStep(false))
	checkCore(t, f)
}

// Cleared and closed holders free their memory, and their holders.
func TestClearAndCloseFreeMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 10))
	f, holders := newTestFleet(t, Config{}, 3)
	kept := randomHashes(rng, 2000)
	storeAll(t, holders[0], kept)
	f.collect()
	before := f.Stats().Bytes
	for i := range 30 {
		h := holders[1]
		own := randomHashes(rng, 20_000)
		storeAll(t, h, own)
		storeAll(t, h, kept)
		require.EqualValues(t, own.Len()*16, tokens(t, f, h, own))
		if i%2 == 0 {
			h.Clear()
			require.Zero(t, h.len())
		} else {
			h.Close()
			h.Close() // does nothing
			require.ErrorIs(t, h.Store(&events.Blocks{Hashes: own}, make([]bool, own.Len())), ErrClosed)
			require.ErrorIs(t, h.Remove(&events.Blocks{Hashes: own}), ErrClosed)
			require.ErrorIs(t, h.Predict(own), ErrClosed)
			h.Clear()
			h.SetStale(false)
			require.Zero(t, h.len())
			require.Nil(t, f.Get(h.id))
			var err error
			holders[1], err = f.Add(h.id)
			require.NoError(t, err)
			holders[1].SetStale(false)
		}
		require.Zero(t, tokens(t, f, h, own))
		require.EqualValues(t, kept.Len()*16, tokens(t, f, holders[0], kept))
	}
	f.collect()
	checkCore(t, f)
	require.EqualValues(t, kept.Len(), f.Stats().Blocks)
	require.Less(t, f.Stats().Bytes, before+2_000_000)
	require.LessOrEqual(t, len(f.core.numbers.list), 64)
	for _, h := range holders {
		h.Close()
	}
	empty, _ := newTestFleet(t, Config{}, 0)
	require.Equal(t, empty.Stats(), f.Stats())
}

// The memory bound refuses blocks, and holds. Memory that is freed can be used again.
func TestMaxBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 11))
	const limit = 4 << 20
	f, holders := newTestFleet(t, Config{MaxBytes: limit}, 2)
	fill := func(h *Holder) (stored coordinator.Hashes) {
		for {
			hashes := randomHashes(rng, 1000)
			err := h.Store(&events.Blocks{Tier: gpu, Hashes: hashes}, make([]bool, 1000))
			require.LessOrEqual(t, f.Stats().Bytes, int64(limit))
			if err != nil {
				require.ErrorIs(t, err, ErrFull)
				require.ErrorIs(t, err, events.ErrFull)
				return stored
			}
			stored = hashes
		}
	}
	last := fill(holders[0])
	require.Greater(t, f.Stats().Blocks, int64(limit/45))
	require.EqualValues(t, 16_000, tokens(t, f, holders[0], last))
	require.Error(t, holders[1].Store(&events.Blocks{Tier: gpu, Hashes: randomHashes(rng, 4000)}, make([]bool, 4000)))
	full := f.Stats().Blocks
	holders[0].Clear()
	fill(holders[1])
	require.Greater(t, f.Stats().Blocks, full*3/4)
	checkCore(t, f)
}

// The entries of a holder are bounded, and predictions keep out no events.
func TestMaxBlocksOfAHolder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 12))
	const limit = 1000
	f, holders := newTestFleet(t, Config{MaxBlocks: limit}, 2)
	h, hashes := holders[0], randomHashes(rng, limit-1)
	storeAll(t, h, hashes)
	storeAll(t, h, hashes) // adds none
	more := randomHashes(rng, limit)
	require.ErrorIs(t, h.Predict(more), ErrFull)
	require.Equal(t, limit, h.len())
	require.ErrorIs(t, h.Store(&events.Blocks{Tier: gpu, Hashes: more}, nil), ErrFull)
	require.Equal(t, limit+1, h.len(), "events do not count predictions")
	require.ErrorIs(t, h.Store(&events.Blocks{Tier: gpu, Hashes: hashes}, nil), ErrFull)
	storeAll(t, holders[1], hashes)
	checkCore(t, f)
}

// If memory is used up, the oldest predictions go first.
func TestMaxBytesDropsPredictions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 13))
	now := time.Unix(0, 0)
	f, holders := newTestFleet(t, Config{MaxBytes: 2 << 20, PredictTTL: time.Minute, now: func() time.Time { return now }}, 2)
	first := randomHashes(rng, 25_000)
	require.NoError(t, holders[0].Predict(first))
	now = now.Add(16 * time.Second)
	require.EqualValues(t, first.Len()*16, tokens(t, f, holders[0], first))
	second := randomHashes(rng, 60_000)
	require.NoError(t, holders[1].Predict(second))
	require.Zero(t, tokens(t, f, holders[0], first))
	require.EqualValues(t, second.Len()*16, tokens(t, f, holders[1], second))
	require.ErrorIs(t, holders[1].Predict(first), ErrFull)
	checkCore(t, f)
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 26)) }

func hashesOf(blob []byte, hashLen int) coordinator.Hashes {
	return coordinator.NewHashes(blob, hashLen)
}

// What is predicted never keeps out what events say, a router that predicts too much
// would make holders lose what they have.
func TestEventsDropPredictions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 14))
	now := time.Unix(0, 0)
	f, holders := newTestFleet(t, Config{MaxBytes: 2 << 20, PredictTTL: time.Minute, now: func() time.Time { return now }}, 2)
	h, kept := holders[0], randomHashes(rng, 1000)
	storeAll(t, h, kept)
	for err := error(nil); err == nil; {
		if err = h.Predict(randomHashes(rng, 1000)); err != nil {
			require.ErrorIs(t, err, ErrFull)
		}
	}
	stored := randomHashes(rng, 20_000)
	storeAll(t, h, stored)
	require.EqualValues(t, 1000*16, tokens(t, f, h, kept))
	require.EqualValues(t, 20_000*16, tokens(t, f, h, stored))
	require.Equal(t, 21_000, h.len())
	checkCore(t, f)

	more := randomHashes(rng, 10)
	require.ErrorIs(t, h.Predict(more), ErrFull)
	now = now.Add(15 * time.Second) // the next quarter
	require.NoError(t, h.Predict(more))
	require.EqualValues(t, 10*16, tokens(t, f, h, more))
	checkCore(t, f)
}
