package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router/events"
)

// blocksOf returns n blocks of a group.
func blocksOf(group, n int, size int64, kind string, window int64) *events.Blocks {
	return &events.Blocks{Group: group, Tier: gpu, Hashes: randomHashes(newRand(3), n), BlockSize: size, SpecKind: kind, SlidingWindow: window}
}

// A group that differs from what was described or told before is refused.
func TestGroups(t *testing.T) {
	inCPU := blocksOf(0, 2, 64, "", 0)
	inCPU.Tier.Medium = "CPU"
	described := []coordinator.Group{full(16), window(32, 100)}
	for name, c := range map[string]struct {
		groups []coordinator.Group
		events []*events.Blocks
		isErr  bool // of the last
	}{
		"equal":                         {nil, []*events.Blocks{blocksOf(0, 2, 16, "full_attention", -1), blocksOf(0, 5, 16, "full_attention", -1)}, false},
		"no more told":                  {nil, []*events.Blocks{blocksOf(0, 2, 16, "full_attention", 0), blocksOf(0, 5, 0, "", 0)}, false},
		"told later":                    {nil, []*events.Blocks{blocksOf(0, 2, 0, "", 0), blocksOf(0, 5, 48, "sliding_window", 64)}, false},
		"other size":                    {nil, []*events.Blocks{blocksOf(0, 2, 16, "", 0), blocksOf(0, 2, 32, "", 0)}, true},
		"smaller size":                  {nil, []*events.Blocks{blocksOf(0, 2, 32, "", 0), blocksOf(0, 2, 16, "", 0)}, true},
		"no multiple":                   {nil, []*events.Blocks{blocksOf(0, 2, 24, "", 0)}, true},
		"too large":                     {nil, []*events.Blocks{blocksOf(0, 2, 1<<21, "", 0)}, true},
		"other kind":                    {nil, []*events.Blocks{blocksOf(0, 2, 16, "mamba", 0), blocksOf(0, 2, 16, "full_attention", 0)}, true},
		"other window":                  {nil, []*events.Blocks{blocksOf(0, 2, 16, "sliding_window", 64), blocksOf(0, 2, 16, "sliding_window", 65)}, true},
		"part of a block":               {nil, []*events.Blocks{blocksOf(0, 2, 64, "", 0), blocksOf(0, 1, 16, "", 0), blocksOf(0, 1, 5, "", 0)}, false},
		"parts first":                   {nil, []*events.Blocks{blocksOf(0, 1, 5, "", 0), blocksOf(0, 1, 16, "", 0), blocksOf(0, 2, 64, "", 0)}, false},
		"parts first, then smaller":     {nil, []*events.Blocks{blocksOf(0, 1, 32, "", 0), blocksOf(0, 2, 16, "", 0)}, true},
		"joined blocks in the CPU":      {nil, []*events.Blocks{inCPU, blocksOf(0, 2, 16, "", 0), inCPU}, false},
		"number too large":              {nil, []*events.Blocks{blocksOf(maxGroups, 2, 16, "", 0)}, true},
		"sizes without a multiple":      {nil, []*events.Blocks{blocksOf(0, 2, 16*65521, "", 0), blocksOf(1, 2, 16*65519, "", 0)}, true},
		"described":                     {described, []*events.Blocks{blocksOf(1, 2, 32, "sliding_window", 100)}, false},
		"described, parts":              {described, []*events.Blocks{blocksOf(1, 1, 16, "", 0)}, false},
		"described, other kind":         {described, []*events.Blocks{blocksOf(1, 2, 32, "full_attention", 0)}, true},
		"described, other window":       {described, []*events.Blocks{blocksOf(1, 2, 32, "sliding_window", 64)}, true},
		"described, other size":         {described, []*events.Blocks{blocksOf(1, 2, 16, "sliding_window", 100)}, true},
		"described, no such group":      {described, []*events.Blocks{blocksOf(2, 2, 16, "", 0)}, true},
		"described, joined in the CPU":  {described, []*events.Blocks{inCPU}, false},
		"described, a kind that is new": {described, []*events.Blocks{blocksOf(0, 2, 16, "kind of tomorrow", 0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, holders := newTestFleet(t, Config{Groups: c.groups}, 1)
			for i, b := range c.events {
				err := holders[0].Store(b, nil)
				if c.isErr && i == len(c.events)-1 {
					require.ErrorIs(t, err, ErrGroup)
				} else {
					require.NoError(t, err)
				}
			}
		})
	}
}

// What is learned of one engine holds for all, until none is left.
func TestGroupsAreOfAllHolders(t *testing.T) {
	f, holders := newTestFleet(t, Config{}, 2)
	hashes := randomHashes(newRand(4), 12)
	storeAll(t, holders[0], hashes)
	storeAll(t, holders[1], hashes)
	require.EqualValues(t, 192, tokens(t, f, holders[1], hashes))
	store := func(h *Holder, group, from, to int) {
		b := &events.Blocks{Group: group, Tier: gpu, Hashes: slice(hashes, from, to), BlockSize: 16, SpecKind: "sliding_window", SlidingWindow: 33}
		require.NoError(t, h.Store(b, nil))
	}
	store(holders[0], 3, 4, 8)
	require.EqualValues(t, 8*16, tokens(t, f, holders[0], hashes))
	require.Zero(t, tokens(t, f, holders[1], hashes), "it lacks the window")
	store(holders[1], 3, 0, 1) // a window at the beginning may be shorter
	require.EqualValues(t, 16, tokens(t, f, holders[1], hashes))
	for _, h := range holders {
		h.Close()
	}
	h := addHolder(t, f, "next")
	storeAll(t, h, hashes)
	require.EqualValues(t, 192, tokens(t, f, h, hashes))
}

// A group that is not kept in the store is in the engine all the same.
func TestGroupsWithoutTransferCount(t *testing.T) {
	groups := []coordinator.Group{full(16), {BlockSize: 16, EnableKVTransfer: new(bool)}}
	f, holders := newTestFleet(t, Config{Groups: groups}, 1)
	hashes := randomHashes(newRand(4), 4)
	storeAll(t, holders[0], hashes)
	require.Zero(t, tokens(t, f, holders[0], hashes))
	b := &events.Blocks{Group: 1, Tier: gpu, Hashes: slice(hashes, 0, 3)}
	require.NoError(t, holders[0].Store(b, nil))
	require.EqualValues(t, 48, tokens(t, f, holders[0], hashes))
}

// A prediction counts in its quarter of the time to live and in the three that follow.
func TestPredictionEnds(t *testing.T) {
	start := time.Unix(100, 0)
	clock := &fakeClock{start}
	f, holders := newTestFleet(t, Config{PredictTTL: time.Minute, now: clock.now}, 1)
	h, hashes := holders[0], randomHashes(newRand(5), 3)
	h.SetStale(true) // predictions count all the same
	for i, c := range []struct{ predicted, lasts time.Duration }{
		{0, time.Minute}, {15*time.Second - 1, 45*time.Second + 1}, {15 * time.Second, time.Minute}, {20 * time.Second, 55 * time.Second},
	} {
		begin := start.Add(time.Duration(i) * time.Hour).Add(c.predicted)
		clock.Time = begin
		require.NoError(t, h.Predict(hashes))
		clock.Time = begin.Add(c.lasts - 1)
		require.EqualValues(t, 48, tokens(t, f, h, hashes))
		require.Equal(t, 3, h.len())
		clock.Time = begin.Add(c.lasts)
		require.Zero(t, tokens(t, f, h, hashes))
		require.Zero(t, h.len())
	}
	clock.pass(time.Hour)
	require.NoError(t, h.Predict(hashes))
	clock.pass(50 * time.Second)
	require.NoError(t, h.Predict(slice(hashes, 0, 2))) // replaces the older one
	require.Equal(t, 3, h.len())
	clock.pass(50 * time.Second)
	require.EqualValues(t, 32, tokens(t, f, h, hashes))
	require.NoError(t, h.Remove(&events.Blocks{Hashes: slice(hashes, 0, 1)}))
	require.Zero(t, tokens(t, f, h, hashes), "an event says that it was removed")
	f.collect()
	require.EqualValues(t, 1, f.Stats().Blocks)
	checkCore(t, f)
}

// Groups are learned anew once no holder is left, also if a snapshot is being copied then.
func TestGroupsEndDuringSnapshot(t *testing.T) {
	f, holders := newTestFleet(t, Config{}, 1)
	hashes := randomHashes(newRand(1), 16)
	storeOf(t, holders[0], 0, hashes, "full_attention", 0)
	copied := f.core
	copied.copying++ // as Snapshot does
	holders[0].Close()
	h := addHolder(t, f, "other")
	storeOf(t, h, 0, hashes, "sliding_window", 64)
	copied.copying--
	require.EqualValues(t, 16*16, tokens(t, f, h, hashes))
	checkCore(t, f)
}
