package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"testing"

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
		"too large a window":            {nil, []*events.Blocks{blocksOf(0, 2, 16, "full_attention", 1<<31)}, true},
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

// Blocks that the model's block_size does not divide are refused with both sizes.
func TestOtherHashSize(t *testing.T) {
	_, holders := newTestFleet(t, Config{}, 1)
	err := holders[0].Store(blocksOf(0, 2, 24, "", 0), nil)
	require.ErrorContains(t, err, "no multiple of 16; the model's block_size is 16, the engine's 24")
}

// liars store something else than eight honest engines, which have 16-token blocks of full attention in group 0 and of a
// window of 64 tokens in group 1.
var liars = map[string]func(*Holder, coordinator.Hashes){
	"nothing":           func(*Holder, coordinator.Hashes) {},
	"an extra group":    storing(events.Blocks{Group: 2, SpecKind: "full_attention", BlockSize: 16}),
	"another kind":      storing(events.Blocks{SpecKind: "sliding_window", SlidingWindow: 64, BlockSize: 16}),
	"another window":    storing(events.Blocks{Group: 1, SpecKind: "sliding_window", SlidingWindow: 100, BlockSize: 16}),
	"another size":      storing(events.Blocks{SpecKind: "full_attention", BlockSize: 64}),
	"without a window":  storing(events.Blocks{SpecKind: "full_attention", BlockSize: 16}),
	"group 65,535":      storing(events.Blocks{Group: 65535, BlockSize: 16}),
	"a kind of its own": storing(events.Blocks{Group: 1, SpecKind: "kind of tomorrow", BlockSize: 16}),
	"a thousand groups": func(h *Holder, hashes coordinator.Hashes) {
		for g := range 1000 {
			storing(events.Blocks{Group: g, BlockSize: 32})(h, slice(hashes, 0, 2))
		}
	},
	"media without end": func(h *Holder, hashes coordinator.Hashes) {
		for i := range 1000 {
			storing(events.Blocks{Tier: events.Tier{Medium: strconv.Itoa(i)}})(h, slice(hashes, 0, 1))
			if i%100 == 0 {
				h.Clear()
			}
		}
	},
}

// storing returns what stores hashes as one event, which may be refused.
func storing(b events.Blocks) func(*Holder, coordinator.Hashes) {
	return func(h *Holder, hashes coordinator.Hashes) {
		b := b
		b.Tier.Medium = cmp.Or(b.Tier.Medium, "GPU")
		b.Hashes = hashes
		_ = h.Store(&b, nil)
	}
}

// runWithLiar returns all answers about eight honest engines, between which another one lies and goes.
func runWithLiar(t *testing.T, groups []coordinator.Group, lie func(*Holder, coordinator.Hashes), isFirst bool, end func(*Holder)) (answers []Prefix) {
	rng := newRand(4)
	hashes := randomHashes(rng, 24)
	f, holders := newTestFleet(t, Config{Groups: groups}, 8)
	liar := addHolder(t, f, "liar")
	ask := func() {
		var r Result
		require.NoError(t, f.Lookup(&r, hashes))
		for _, p := range r.Holders {
			if p.ID != liar.id {
				answers = append(answers, Prefix{p.ID, p.Tokens, slices.Clone(p.Media)})
			}
		}
		checkCore(t, f)
	}
	store := func(tier events.Tier) {
		for i, h := range holders {
			for g, kind := range []string{"full_attention", "sliding_window"} {
				b := events.Blocks{Group: g, Tier: tier, Hashes: slice(hashes, 0, 5+2*i), BlockSize: 16, SpecKind: kind, SlidingWindow: int64(64 * g)}
				require.NoError(t, h.Store(&b, nil))
			}
		}
		ask()
	}
	if isFirst {
		lie(liar, hashes)
	}
	store(gpu)
	lie(liar, hashes)
	ask()
	holders[7].Clear()
	store(gpu)
	end(liar)
	store(events.Tier{Medium: "CPU"})
	return answers
}

// An engine that says something else of its groups changes answers about itself alone, whenever it comes and however it
// goes.
func TestLiarChangesOnlyAnswersAboutItself(t *testing.T) {
	ends := []func(*Holder){func(*Holder) {}, (*Holder).Clear, (*Holder).Close, func(h *Holder) { h.SetStale(true) }}
	want := runWithLiar(t, nil, liars["nothing"], false, ends[0])
	require.Len(t, want, 4*8)
	for _, p := range want {
		require.NotZero(t, p.Tokens)
	}
	for name, lie := range liars {
		for i, end := range ends {
			for _, isFirst := range []bool{true, false} {
				for _, groups := range [][]coordinator.Group{nil, {full(16), window(16, 64)}} {
					require.Equal(t, want, runWithLiar(t, groups, lie, isFirst, end), "%s, end %d, first: %v", name, i, isFirst)
				}
			}
		}
	}
}

// Mamba counts by what its events tell as if it were described.
func TestMambaIsLearned(t *testing.T) {
	described := []coordinator.Group{full(16), {Kind: coordinator.Mamba, BlockSize: 32}}
	rng, hashes, found := newRand(7), randomHashes(newRand(8), 16), 0
	for range 200 {
		var got [2]int64
		n, states := 1+rng.IntN(16), rng.Uint32()|1<<15 // a group that has stored nothing is not known
		for i, cfg := range []Config{{Groups: described}, {}} {
			f, holders := newTestFleet(t, cfg, 1)
			storeOf(t, holders[0], 0, slice(hashes, 0, n), "full_attention", 0)
			for at := 1; at < 16; at += 2 { // the hash at the end of a block of two
				if states>>at&1 != 0 {
					b := events.Blocks{Group: 1, Tier: gpu, Hashes: slice(hashes, at, at+1), BlockSize: 32, SpecKind: "mamba", SlidingWindow: -1}
					require.NoError(t, holders[0].Store(&b, nil))
				}
			}
			got[i] = tokens(t, f, holders[0], hashes)
		}
		require.Equal(t, got[0], got[1])
		if got[0] > 32 {
			found++
		}
	}
	require.Greater(t, found, 100)
}

// A kind whose parameters events do not tell counts as full attention.
func TestUnknownKind(t *testing.T) {
	f, holders := newTestFleet(t, Config{}, 1)
	hashes := randomHashes(newRand(4), 4)
	storeOf(t, holders[0], 0, hashes, "full_attention", 0)
	storeOf(t, holders[0], 1, slice(hashes, 2, 4), "chunked_local_attention", 0)
	require.Zero(t, tokens(t, f, holders[0], hashes))
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
