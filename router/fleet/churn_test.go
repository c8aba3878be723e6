package fleet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/partstest"
	"github.com/hitline/hitline/router/events"
)

// Many blocks come and go: memory of those that are gone is reused, and all others are found.
func TestMemoryIsReused(t *testing.T) {
	const prompt, keep = 500, 60
	rng := newRand(9)
	f, holders := newTestFleet(t, Config{}, 4)
	type stored struct {
		holder *Holder
		hashes coordinator.Hashes
	}
	var list []stored
	var early int64
	for i := range 800 {
		s := stored{holders[i%len(holders)], randomHashes(rng, prompt)}
		storeAll(t, s.holder, s.hashes)
		if list = append(list, s); len(list) > keep {
			at := rng.IntN(len(list))
			gone := list[at]
			list = append(list[:at], list[at+1:]...)
			require.NoError(t, gone.holder.Remove(&events.Blocks{Group: events.NoGroup, Hashes: gone.hashes}))
			require.Zero(t, tokens(t, f, gone.holder, gone.hashes))
		}
		if i == 300 {
			early = f.Stats().Bytes
		}
	}
	checkCore(t, f)
	s := f.Stats()
	require.EqualValues(t, keep*prompt, s.Blocks)
	require.Less(t, s.Bytes, early*3/2)
	require.Greater(t, f.core.table.depth, uint8(4))
	jumps := 0 // chains are still runs after compaction: the records of a prompt follow each other
	for _, s := range list {
		require.EqualValues(t, prompt*16, tokens(t, f, s.holder, s.hashes))
		jumps += jumpsIn(t, f, s.hashes)
	}
	require.Less(t, jumps, len(list)*4)
}

// jumpsIn returns how many blocks are not behind the one before in memory.
func jumpsIn(t *testing.T, f *Fleet, hashes coordinator.Hashes) (jumps int) {
	next := uint32(0)
	for _, hash := range hashes.All() {
		pos, ok := f.core.find(key(hash, 0), next)
		require.True(t, ok)
		if pos != next {
			jumps++
		}
		next = pos + 1
	}
	return jumps
}

// Blocks of many prompts that come one by one, in turns, follow each other in memory as if each prompt had come at once: those
// of one engine by their parents, those of engines that tell none by the order in which they come.
func TestPromptsGrowInPlace(t *testing.T) {
	const first, output = 200, 100
	rng := newRand(18)
	f, holders := newTestFleet(t, Config{}, 17)
	var prompts []coordinator.Hashes
	for i := range 2 * len(holders) {
		prompts = append(prompts, randomHashes(rng, first+output))
		storeAll(t, holders[max(0, i-len(holders))], slice(prompts[i], 0, first))
	}
	for at := first; at < first+output; at++ {
		for i, prompt := range prompts {
			b := &events.Blocks{Tier: gpu, Hashes: slice(prompt, at, at+1), BlockSize: 16}
			if i <= len(holders) {
				b.Parent = prompt.At(at - 1)
			}
			require.NoError(t, holders[max(0, i-len(holders))].Store(b, nil))
		}
	}
	jumps := 0
	for _, prompt := range prompts {
		jumps += jumpsIn(t, f, prompt)
	}
	require.Less(t, jumps, len(prompts)*6)
	checkCore(t, f)
}

// A clear of a tier removes all that is held there and nothing else, while blocks of others come and go, and are moved.
func TestClearTierWhileOthersChange(t *testing.T) {
	rng := newRand(27)
	f, holders := newTestFleet(t, Config{}, 2)
	h, other := holders[0], holders[1]
	cpu := &events.Blocks{Tier: events.Tier{Medium: "CPU"}, Hashes: randomHashes(rng, 3000), BlockSize: 16}
	require.NoError(t, h.Store(cpu, nil))
	for range 20 {
		both := randomHashes(rng, 1000)
		storeAll(t, h, both)
		storeAll(t, other, both)
		storeAll(t, other, randomHashes(rng, 1000))
	}
	storeAll(t, h, cpu.Hashes)
	steps := 0
	require.NoError(t, h.ClearTier(&events.Blocks{Group: events.NoGroup, Tier: gpu}, func() error {
		switch steps++; {
		case steps == 1:
			other.Clear()
		case steps < 20:
			storeAll(t, other, randomHashes(rng, 2000))
		}
		f.collect(noPause)
		return nil
	}))
	require.Greater(t, steps, 40)
	require.Equal(t, cpu.Hashes.Len(), h.len())
	require.EqualValues(t, cpu.Hashes.Len()*16, tokens(t, f, h, cpu.Hashes))
	checkCore(t, f)

	stop := errors.New("stop")
	require.ErrorIs(t, h.ClearTier(&events.Blocks{Group: events.NoGroup, Tier: cpu.Tier}, func() error { return stop }), stop)
}

// A segment that is compacted may be freed meanwhile, and its number be that of the segment that is appended to.
// Compaction then ends, instead of moving what it has moved.
func TestCompactionEndsIfItsSegmentIsFreed(t *testing.T) {
	f, holders := newTestFleet(t, Config{}, 1)
	storeAll(t, holders[0], randomHashes(newRand(7), 100))
	c := f.core
	s := &c.collection
	s.cleaning, s.compacting, s.segment, s.record, s.endSegment = true, true, c.log.tailNum, 1, c.log.tailNum+1
	require.True(t, c.collectStep(false))
	require.False(t, c.collectStep(false))
	checkCore(t, f)
}

// Cleared and closed holders free their memory, and their numbers.
func TestClearAndCloseFreeMemory(t *testing.T) {
	rng := newRand(10)
	f, holders := newTestFleet(t, Config{}, 3)
	kept := randomHashes(rng, 2000)
	storeAll(t, holders[0], kept)
	f.collect(noPause)
	before := f.Stats().Bytes
	for i := range 30 {
		h, own := holders[1], randomHashes(rng, 20_000)
		storeAll(t, h, own)
		storeAll(t, h, kept)
		require.EqualValues(t, own.Len()*16, tokens(t, f, h, own))
		if i%2 == 0 {
			h.Clear()
		} else {
			h.Close()
			h.Close() // does nothing, as what follows
			require.ErrorIs(t, h.Store(&events.Blocks{Hashes: own}, nil), ErrClosed)
			require.ErrorIs(t, h.Remove(&events.Blocks{Hashes: own}), ErrClosed)
			require.ErrorIs(t, h.Predict(t.Context(), own), ErrClosed)
			h.Clear()
			h.SetStale(false)
			require.Nil(t, f.Get(h.id))
			holders[1] = addHolder(t, f, h.id.Engine)
		}
		require.Zero(t, h.Len())
		require.Zero(t, tokens(t, f, h, own))
		require.EqualValues(t, kept.Len()*16, tokens(t, f, holders[0], kept))
	}
	f.collect(noPause)
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

// Groups, tiers and media that no holder uses any more take no number from others, however often new ones come.
func TestNumbersOfMediaAreReused(t *testing.T) {
	f, holders := newTestFleet(t, Config{}, 2)
	honest, liar := holders[0], holders[1]
	own := randomHashes(newRand(11), 8)
	storeAll(t, honest, own)
	for i := range 2 + max(maxMedia/maxHolderMedia, maxGroupTiers/events.MaxGroupTiers) {
		for j := range events.MaxGroupTiers {
			tier := events.Tier{Medium: fmt.Sprint(i, j%maxHolderMedia), Ownership: fmt.Sprint(j)}
			require.NoError(t, liar.Store(&events.Blocks{Tier: tier, Hashes: own}, nil))
		}
		if i%2 == 0 {
			liar.Clear()
		} else {
			liar.Close()
			liar = addHolder(t, f, "engine-001")
		}
	}
	cpu := &events.Blocks{Tier: events.Tier{Medium: "CPU"}, Hashes: slice(own, 0, 4)}
	require.NoError(t, honest.Store(cpu, nil))
	var r Result
	require.NoError(t, f.Lookup(&r, own))
	require.Equal(t, []Prefix{{honest.id, 128, []MediumPrefix{{"CPU", 64}, {"GPU", 128}}}}, r.Holders)
	require.LessOrEqual(t, f.core.tiers.Len(), events.MaxGroupTiers+1)
	checkCore(t, f)

	before := r.Holders
	cpu.Tier.Medium = "DISK" // of which it has no block in the snapshot
	require.NoError(t, honest.Store(cpu, nil))
	require.NoError(t, honest.Remove(cpu))
	f, err := New(f.cfg)
	require.NoError(t, err)
	require.NoError(t, f.Load(partstest.Reader(snapshotOf(honest.fleet))))
	_, known := f.core.tiers.Find(0, &cpu.Tier)
	require.False(t, known)
	f.Get(honest.id).SetStale(false)
	r = Result{}
	require.NoError(t, f.Lookup(&r, own))
	require.Equal(t, before, r.Holders)
}

// At the memory bound the largest holder loses blocks: others keep theirs, and none of it is answered any more.
func TestMaxBytes(t *testing.T) {
	rng := newRand(11)
	const limit = 4 << 20
	f, holders := newTestFleet(t, Config{MaxBytes: limit}, 4)
	shared, small, alone := randomHashes(rng, 500), randomHashes(rng, 2000), randomHashes(rng, 2000)
	storeAll(t, holders[2], small)
	for _, h := range holders[:3] {
		storeAll(t, h, shared)
	}
	predicted := randomHashes(rng, 1000)
	require.NoError(t, holders[3].Predict(t.Context(), predicted))
	large := holders[0]
	var chains []coordinator.Hashes
	for range 300 {
		chains = append(chains, randomHashes(rng, 1000))
		storeAll(t, large, chains[len(chains)-1])
		require.LessOrEqual(t, f.Stats().Bytes, int64(limit))
	}
	storeAll(t, holders[1], alone) // comes last, and is not refused
	checkCore(t, f)
	require.EqualValues(t, predicted.Len()*16, tokens(t, f, holders[3], predicted))
	for _, h := range []struct {
		holder *Holder
		hashes []coordinator.Hashes
	}{{holders[1], []coordinator.Hashes{shared, alone}}, {holders[2], []coordinator.Hashes{shared, small}}, {large, []coordinator.Hashes{shared}}} {
		for _, hashes := range h.hashes {
			require.EqualValues(t, hashes.Len()*16, tokens(t, f, h.holder, hashes))
		}
		require.Equal(t, h.holder == large, h.holder.Dropped() > 0)
	}
	held := 0
	for _, chain := range chains {
		n := 0 // that are held, whether or not those before them are
		for i := range chain.Len() {
			if tokens(t, f, large, slice(chain, i, i+1)) > 0 {
				n++
			}
		}
		require.LessOrEqual(t, tokens(t, f, large, chain), int64(n*16))
		held += n
	}
	require.Equal(t, large.Len(), held+shared.Len())
	require.Greater(t, held, limit/60)
	require.NoError(t, large.Remove(&events.Blocks{Hashes: chains[299]}))
	large.Clear()
	blocks := f.Stats().Blocks
	require.EqualValues(t, shared.Len()+small.Len()+alone.Len()+predicted.Len(), blocks)
}

// Engines that hold the same, or nearly as much, shrink together, and a bound that is too low for all refuses.
func TestMaxBytesOfEqualHolders(t *testing.T) {
	rng := newRand(12)
	f, holders := newTestFleet(t, Config{MaxBytes: 4 << 20}, 6)
	small := randomHashes(rng, 3000)
	storeAll(t, holders[5], small)
	for range 100 {
		chain := randomHashes(rng, 1000)
		for i, h := range holders[:5] {
			if i > 1 { // the first two hold the same
				chain = randomHashes(rng, 500)
			}
			storeAll(t, h, chain)
		}
	}
	checkCore(t, f)
	require.EqualValues(t, small.Len()*16, tokens(t, f, holders[5], small))
	for _, h := range holders[:5] {
		require.Greater(t, h.Len(), 10_000)
	}
	_, holders = newTestFleet(t, Config{MaxBytes: 90_000}, 1)
	require.ErrorIs(t, holders[0].Store(&events.Blocks{Tier: gpu, Hashes: small}, nil), ErrFull)
}

// A holder that stores each block in other groups and tiers, so that each has a set of its own, shrinks for them: another
// one with more blocks keeps its part of the memory.
func TestMaxBytesOfManySets(t *testing.T) {
	rng := newRand(16)
	f, holders := newTestFleet(t, Config{MaxBytes: 4 << 20}, 2)
	for range 120 {
		storeAll(t, holders[0], randomHashes(rng, 1000))
	}
	for range 40_000 {
		hash := randomHashes(rng, 1)
		for range 3 {
			tier := events.Tier{Medium: string(rune('A' + rng.IntN(8)))}
			require.NoError(t, holders[1].Store(&events.Blocks{Group: rng.IntN(31), Tier: tier, Hashes: hash}, nil))
		}
	}
	checkCore(t, f)
	require.Greater(t, holders[0].Len(), 25_000)
	require.Greater(t, holders[1].Len(), 10_000)
}

// Who makes room lets others have the lock and the processor while it waits for a snapshot, and after each step that drops a
// bounded number of blocks.
func TestMakingRoomPauses(t *testing.T) {
	rng := newRand(17)
	f, holders := newTestFleet(t, Config{MaxBytes: 4 << 20}, 1)
	h, before, most, paused := holders[0], int64(0), int64(0), 0
	blocks := events.Blocks{Tier: gpu, Pause: func() func() {
		if paused == 0 {
			f.room.RUnlock()
		}
		paused++
		dropped := h.Dropped() // takes the lock
		most, before = max(most, dropped-before), dropped
		return func() { paused++ }
	}}
	f.room.RLock() // as a snapshot that is copied
	for before == 0 {
		blocks.Hashes = randomHashes(rng, 1000)
		require.NoError(t, h.Store(&blocks, nil))
	}
	require.Greater(t, before, int64(10_000))
	require.LessOrEqual(t, most, int64(maxCostPerStep/changeCost))
	require.Zero(t, paused%2) // all have ended
}

// The entries of a holder are bounded, and predictions keep out no events.
func TestMaxBlocksOfAHolder(t *testing.T) {
	const limit = 1000
	rng := newRand(12)
	f, holders := newTestFleet(t, Config{MaxBlocks: limit}, 2)
	h, hashes, more := holders[0], randomHashes(rng, limit-1), randomHashes(rng, limit)
	storeAll(t, h, hashes)
	storeAll(t, h, hashes) // adds none
	require.ErrorIs(t, h.Predict(t.Context(), more), ErrFull)
	require.Equal(t, limit, h.len())
	require.ErrorIs(t, h.Store(&events.Blocks{Tier: gpu, Hashes: more}, nil), ErrFull)
	require.Equal(t, limit, h.Len())
	storeAll(t, h, hashes) // as an engine does that reports all that it has
	require.NoError(t, h.Predict(t.Context(), slice(more, 0, 1)))
	storeAll(t, holders[1], hashes)
	checkCore(t, f)
}

// If memory is used up, the oldest predictions go first. They never keep out what events say: a router that predicts too
// much would make holders lose what they have.
func TestMaxBytesDropsPredictions(t *testing.T) {
	rng, clock := newRand(13), &fakeClock{time.Unix(0, 0)}
	f, holders := newTestFleet(t, Config{MaxBytes: 2 << 20, PredictTTL: time.Minute, now: clock.now}, 2)
	h, kept, first, second := holders[0], randomHashes(rng, 1000), randomHashes(rng, 25_000), randomHashes(rng, 60_000)
	storeAll(t, h, kept)
	require.NoError(t, h.Predict(t.Context(), first))
	clock.pass(16 * time.Second)
	require.NoError(t, holders[1].Predict(t.Context(), second))
	require.Zero(t, tokens(t, f, h, first))
	require.EqualValues(t, second.Len()*16, tokens(t, f, holders[1], second))
	require.ErrorIs(t, holders[1].Predict(t.Context(), first), ErrFull)

	stored, more := randomHashes(rng, 20_000), randomHashes(rng, 10)
	storeAll(t, h, stored)
	require.EqualValues(t, kept.Len()*16, tokens(t, f, h, kept))
	require.EqualValues(t, stored.Len()*16, tokens(t, f, h, stored))
	require.ErrorIs(t, h.Predict(t.Context(), more), ErrFull)
	clock.pass(15 * time.Second) // the next quarter
	require.NoError(t, h.Predict(t.Context(), more))
	require.EqualValues(t, more.Len()*16, tokens(t, f, h, more))
	checkCore(t, f)
}
