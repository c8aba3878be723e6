package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/backend"
	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// keySet is a store that holds some keys.
type keySet struct {
	backend.Backend
	keys map[string]bool
}

func (s keySet) Name() string { return "keys" }

func (s keySet) Exists(_ context.Context, keys []string) ([]int, error) {
	answers := make([]int, len(keys))
	for i, key := range keys {
		if s.keys[key] {
			answers[i] = 1
		}
	}
	return answers, nil
}

// remote is s as doctor and serve see it.
func (s keySet) remote() *store { return &store{Backend: s} }

// expectedOf is a pool as a configuration describes it.
func expectedOf(t *testing.T, pool coordinator.Pool) expected {
	rules, err := coordinator.New(pool)
	require.NoError(t, err)
	cfg := config.Default()
	cfg.Pool = rules.Pool()
	return expected{&cfg, rules}
}

// asked is a lookup with the first hashes of a chain.
func asked(chain [][]byte) lookup.LookupEvent {
	blob := slices.Concat(chain...)
	return lookup.LookupEvent{NumTokens: int64(len(chain) * 16), NumHashes: len(chain), Hashes: netproto.NewHashes(blob, 32)}
}

// chainOf is a chain of n random hashes behind another.
func chainOf(r *rand.Rand, before [][]byte, n int) [][]byte {
	chain := slices.Clone(before)
	for range n {
		hash := make([]byte, 32)
		for i := range hash {
			hash[i] = byte(r.Uint32())
		}
		chain = append(chain, hash)
	}
	return chain
}

// randomPool is a pool of some groups of all kinds.
func randomPool(r *rand.Rand) coordinator.Pool {
	pool := coordinator.Pool{ModelName: "m", HashBlockSize: 16, TPSize: 1 << r.IntN(3)}
	pool.NumKVHead = 1 << r.IntN(3)
	pool.Revision = []coordinator.Revision{coordinator.Revision20260620, coordinator.Revision20260817}[r.IntN(2)]
	for range 1 + r.IntN(4) {
		g := coordinator.Group{BlockSize: 16 << r.IntN(3), IsEagleGroup: r.IntN(6) == 0}
		g.Kind = []coordinator.Kind{coordinator.FullAttention, coordinator.FullAttention, coordinator.MLAAttention, coordinator.SlidingWindow, coordinator.SlidingWindow, coordinator.Mamba}[r.IntN(6)]
		if g.Kind == coordinator.SlidingWindow {
			g.SlidingWindow = 2 + r.IntN(64)
		}
		if g.Kind == coordinator.Mamba && r.IntN(4) == 0 {
			g.MambaCacheMode = "align"
		}
		pool.Groups = append(pool.Groups, g)
	}
	pool.SchedulerBlockSize = 64 << r.IntN(2)
	return pool
}

// storePrompt stores the blocks of a prompt as an engine does, of which evicted says what
// is gone.
func (s keySet) storePrompt(t *testing.T, rules *coordinator.Coordinator, chain [][]byte, tokens int64, evicted func() bool) {
	aligned := tokens - tokens%int64(rules.Pool().SchedulerBlockSize)
	masks, err := rules.StoreMask(aligned, 0, tokens)
	require.NoError(t, err)
	for g, mask := range masks {
		stride := rules.Stride(g)
		for c := range aligned / int64(rules.Pool().Groups[g].BlockSize) {
			if !mask.IsAll() && !mask.At(c) {
				continue
			}
			for rank := range rules.Ranks(g) {
				if !evicted() {
					s.keys[string(rules.AppendKey(nil, g, rank, chain[int(c)*stride+stride-1]))] = true
				}
			}
		}
	}
}

// TestOrderOfRandomPools stores prompts as engines of random pools do. Nothing is found
// of the pool in its own order, whatever was evicted and whatever the retention interval,
// and always something in an order where other blocks would have been stored.
func TestOrderOfRandomPools(t *testing.T) {
	swaps, retained, fine := 0, 0, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		pool := randomPool(r)
		e := expectedOf(t, pool)
		engine := e.rules
		switch interval, kept := r.IntN(4)*pool.SchedulerBlockSize, pool; r.IntN(4) {
		case 0, 1: // what the engine has, the pool need not describe
			kept.RetentionInterval = &interval
			engine = expectedOf(t, kept).rules
			retained++
		case 2: // what the pool describes, may be none that an engine takes
			interval += 16 * r.IntN(2)
			pool.RetentionInterval = &interval
			e = expectedOf(t, pool)
			engine = e.rules
			retained++
		}
		if e.rules.FineGrained() {
			fine++
		}
		store := keySet{keys: map[string]bool{}}
		shared := chainOf(r, nil, 16+r.IntN(32))
		var last [][]byte
		for range 3 {
			last = chainOf(r, shared[:r.IntN(len(shared))], 40)
			gone := r.IntN(3) * r.IntN(50) // percent
			tokens := int64(16*len(last) - r.IntN(200))
			if r.IntN(4) == 0 { // the shortest of which anything is stored
				tokens = int64(pool.SchedulerBlockSize)
			}
			store.storePrompt(t, engine, last, tokens, func() bool { return r.IntN(100) < gone })
		}
		about := fmt.Sprintf("seed %d: %+v", seed, pool)
		var f findings
		_, err := e.comparePrompt(t.Context(), store.remote(), promptOf(asked(last)), false, &f)
		require.NoError(t, err)
		require.Empty(t, f.Problems, about)

		// In another order, over a prompt that is stored whole.
		whole := keySet{keys: map[string]bool{}}
		pool.RetentionInterval = nil
		e = expectedOf(t, pool)
		whole.storePrompt(t, e.rules, last, int64(16*len(last)), func() bool { return false })
		i, j := r.IntN(len(pool.Groups)), r.IntN(len(pool.Groups))
		if e.storedAlike(i, j) {
			continue
		}
		other := pool
		other.Groups = slices.Clone(pool.Groups)
		other.Groups[i], other.Groups[j] = other.Groups[j], other.Groups[i]
		f = findings{}
		_, err = expectedOf(t, other).comparePrompt(t.Context(), whole.remote(), promptOf(asked(last)), false, &f)
		require.NoError(t, err)
		require.Len(t, f.Problems, 1, about)
		require.Contains(t, f.Problems[0], "give pool.groups the order of the engine's kv_cache_groups", about)
		swaps++
	}
	assert.Greater(t, swaps, 500)
	assert.Greater(t, retained, 500)
	assert.Greater(t, fine, 50)
}

// A block of a hash that comes again in a prompt does not show for which of its places it
// was stored.
func TestRepeatedHashes(t *testing.T) {
	e := poolOf(t, "pool: {model_name: m, groups: [{kind: full_attention, block_size: 32}, "+full16+"]}\nbackend: {redis: {url: 'redis://h'}}\n")
	chain := chainOf(rand.New(rand.NewPCG(1, 1)), nil, 8)
	for _, repeated := range []bool{false, true} {
		store := keySet{keys: map[string]bool{}}
		if repeated {
			chain[5] = chain[4]
		}
		for _, i := range []int{1, 3, 4} {
			store.keys[string(e.rules.AppendKey(nil, 0, 0, chain[i]))] = true
		}
		var f findings
		_, err := e.comparePrompt(t.Context(), store.remote(), promptOf(asked(chain)), false, &f)
		require.NoError(t, err)
		assert.Equal(t, repeated, len(f.Problems) == 0, "%v", f.Problems)
	}
	var f findings
	b, err := e.comparePrompt(t.Context(), keySet{}.remote(), promptOf(asked(slices.Repeat(chain[:1], 8))), true, &f)
	require.NoError(t, err)
	assert.False(t, b.any())
	assert.Empty(t, f.Problems)
}

// In fine-grained mode lookups ask for every hash, whatever the blocks of a group.
func TestFineGrainedPrompt(t *testing.T) {
	e := poolOf(t, "pool: {model_name: m, revision: 2026-08-17, groups: ["+full64+", {kind: mamba, block_size: 64, mamba_cache_mode: align}]}\nbackend: {redis: {url: 'redis://h'}}\n")
	require.True(t, e.rules.FineGrained())
	chain := chainOf(rand.New(rand.NewPCG(1, 1)), nil, chained)
	store := keySet{keys: map[string]bool{}}
	for i := 3; i < chained; i += 4 {
		store.keys[string(e.rules.AppendKey(nil, 0, 0, chain[i]))] = true
	}
	var f findings
	_, err := e.comparePrompt(t.Context(), store.remote(), promptOf(asked(chain)), true, &f)
	require.NoError(t, err)
	assert.Empty(t, f.Problems)
}

// Blocks at equal distances may be those of a group that an engine thins out.
func TestThinnedPrompt(t *testing.T) {
	e := poolOf(t, "pool: {model_name: m, "+swappedThin+"}\nbackend: {redis: {url: 'redis://h'}}\n")
	chain := chainOf(rand.New(rand.NewPCG(1, 1)), nil, chained)
	store := keySet{keys: map[string]bool{}}
	for i := 1; i < chained; i += 2 {
		store.keys[string(e.rules.AppendKey(nil, 0, 0, chain[i]))] = true
	}
	var f findings
	_, err := e.comparePrompt(t.Context(), store.remote(), promptOf(asked(chain)), true, &f)
	require.NoError(t, err)
	assert.Equal(t, []string{"group 0 has a block for every 32 tokens of a prompt, and lookups ask for one every 16: set block_size of pool.groups[0] to the engine's, or give pool.groups the order of the engine's kv_cache_groups"}, f.Problems)
}

// An arrangement moves no group that it need not.
func TestArrange(t *testing.T) {
	for _, test := range []struct {
		fits string // a row for each group: the descriptions that fit it
		want []int
	}{
		{"x", []int{0}},
		{".", nil},
		{"xx xx", []int{0, 1}},
		{".x x.", []int{1, 0}},
		{".x xx", []int{1, 0}},
		{".x .x", nil},
		{"x.x xx. ..x", []int{0, 1, 2}},
		{".x. ..x x..", []int{1, 2, 0}},
		{"xxx xxx x..", []int{2, 1, 0}},
		{"..x xxx xxx", []int{2, 1, 0}},
		{".x.. x.xx xxxx xxxx", []int{1, 0, 2, 3}},
	} {
		rows := strings.Fields(test.fits)
		got := arrange(len(rows), func(g, d int) bool { return rows[g][d] == 'x' })
		assert.Equal(t, test.want, got, test.fits)
	}
}

// What is said of groups that are not in the place of their descriptions.
func TestMovedText(t *testing.T) {
	for _, test := range []struct{ groups, fits, want string }{
		{
			full16 + ", " + full64, ".x x.",
			"group 0 has the blocks of a full_attention group of block_size 64 and is described as full_attention of block_size 16, group 1 the other way round",
		},
		{
			"{kind: full_attention, block_size: 16}, {kind: mamba, block_size: 16}, {kind: sliding_window, block_size: 16, sliding_window: 32}", ".x. ..x x..",
			"group 0 has the blocks of a mamba group and is described as full_attention, group 1 has the blocks of a sliding_window group and is described as mamba, group 2 has the blocks of a full_attention group and is described as sliding_window",
		},
	} {
		e := poolOf(t, "pool: {groups: ["+test.groups+"]}\n")
		rows := strings.Fields(test.fits)
		var f findings
		assert.True(t, e.compareOrder(evidence{
			has:  func(int) bool { return true },
			fits: func(g, d int) bool { return rows[g][d] == 'x' },
		}, &f))
		assert.Equal(t, []string{test.want + ": give pool.groups the order of the engine's kv_cache_groups"}, f.Problems)
	}
	// A group of which nothing is stored would fit any description.
	e := poolOf(t, "pool: {groups: ["+full16+", "+full64+"]}\n")
	var f findings
	assert.False(t, e.compareOrder(evidence{
		has:  func(g int) bool { return g == 0 },
		fits: func(g, d int) bool { return g == 1 || d == 1 },
	}, &f))
	assert.Empty(t, f.Problems)
}

// What is said of a block that its group does not store.
func TestExcludedText(t *testing.T) {
	for _, test := range []struct {
		pool string
		hash int
		rank coordinator.Rank
		want string
	}{
		{
			"groups: [" + full64 + "]", 0, coordinator.Rank{},
			"group 0 has a block that ends at token 16 of a prompt, and as described (full_attention, block_size 64) it stores one for every 64 tokens, not that one: compare with the engine's: block_size of pool.groups[0]",
		},
		{
			"scheduler_block_size: 64, groups: [{kind: sliding_window, block_size: 16, sliding_window: 1}]", 0, coordinator.Rank{},
			"group 0 has a block that ends at token 16 of a prompt, and as described (sliding_window, block_size 16, sliding_window 1) it stores none, not that one: compare with the engine's: block_size and sliding_window of pool.groups[0], scheduler_block_size (64), retention_interval",
		},
		{
			"scheduler_block_size: 64, use_eagle: true, groups: [{kind: sliding_window, block_size: 16, sliding_window: 17}]", 2, coordinator.Rank{},
			"group 0 has a block that ends at token 48 of a prompt, and as described (sliding_window, block_size 16, sliding_window 17) it stores 2 of every 4 blocks, not that one: compare with the engine's: block_size and sliding_window of pool.groups[0], scheduler_block_size (64), retention_interval",
		},
		{
			"revision: 2026-08-17, tp_size: 2, groups: [" + mla16 + ", " + mamba16 + "]", 0, coordinator.Rank{TP: 1},
			"group 0 has a block on tp_rank 1, pp_rank 0, pcp 0, dcp 0, where lookups do not ask for it: compare with the engine's: tp_size, num_kv_head and the order of pool.groups",
		},
	} {
		e := poolOf(t, "pool: {model_name: m, "+test.pool+"}\n")
		b := make(promptBlocks, e.rules.NumGroups())
		b[0] = []held{{rank: test.rank, have: make([]bool, 8), count: 1}}
		b[0][0].have[test.hash] = true
		var f findings
		e.compareStored(b, &f)
		assert.Equal(t, []string{test.want}, f.Problems)
	}
}

// keysOfGroups are n keys of each group on a rank, of hashes of one chain.
func keysOfGroups(e expected, numbers ...int) (keys []string) {
	for g, n := range numbers {
		for _, hash := range hashesOf("h", 2000, 32)[:n] {
			keys = append(keys, e.rules.KeyPrefix(g, coordinator.Rank{})+hash)
		}
	}
	return keys
}

// Full attention has as many blocks as any other group, but by chance or after evictions.
func TestCoverage(t *testing.T) {
	for name, test := range map[string]struct {
		groups   string
		keys     []int
		complete bool
		problem  bool
	}{
		"as an engine stores":  {swappedThin, []int{200, 60}, true, false},
		"the other way":        {swappedThin, []int{60, 200}, true, true},
		"in part of the keys":  {swappedThin, []int{60, 200}, false, true},
		"less than twice":      {swappedThin, []int{101, 200}, true, false},
		"too few to tell":      {swappedThin, []int{5, telling - 1}, true, false},
		"too few of too many":  {swappedThin, []int{10, telling}, false, false},
		"nothing of a group":   {swappedThin, []int{0, 200}, false, false},
		"larger blocks":        {swappedGroups, []int{60, 200}, true, false},
		"larger blocks, fewer": {swappedGroups, []int{20, 200}, true, true},
		"fine-grained":         {"revision: 2026-08-17, groups: [" + full16 + ", {kind: mamba, block_size: 64, mamba_cache_mode: align}]", []int{60, 200}, true, false},
		"states":               {"groups: [" + full16 + ", {kind: mamba, block_size: 16}]", []int{60, 200}, true, true},
	} {
		e := poolOf(t, "pool: {model_name: m, "+test.groups+"}\nbackend: {redis: {url: 'redis://h'}}\n")
		var f findings
		e.compareCoverage(newSample(keysOfGroups(e, test.keys...), nil, test.complete), &f)
		assert.Equal(t, test.problem, len(f.Problems) > 0, "%s: %v", name, f.Problems)
	}
	e := poolOf(t, "pool: {model_name: m, "+swappedThin+"}\nbackend: {redis: {url: 'redis://h'}}\n")
	var f findings
	e.compareCoverage(newSample(nil, keysOfGroups(e, 60, 200), true), &f)
	assert.Empty(t, f.Problems, "of a set only some members are looked at")
}

// What doctor says of an order that it cannot check, or that blocks may have shown.
func TestDoctorNotesOrder(t *testing.T) {
	server := storetest.StartRedis(t)
	client := server.Client(t)
	put := func(name string, group int, hashes []string) {
		for _, hash := range hashes {
			require.NoError(t, client.Set(t.Context(), fmt.Sprintf("%s@tp_rank:0@pcp0@dcp0@pp_rank:0@group:%d@%s", name, group, hash), "", 0).Err())
		}
	}
	chain := hashesOf("h", chained, 32)
	for group := range 3 {
		put("alike", group, chain)
	}
	put("few", 0, chain[36:]) // of a prompt
	put("few", 1, chain)
	put("many", 0, hashesOf("h", 200, 32)) // of many
	put("many", 1, hashesOf("h", 60, 32))
	put("short", 0, chain[:6])
	put("short", 1, chain[4:6])
	const window16 = "{kind: sliding_window, block_size: 16, sliding_window: 16}"
	const window48Groups = "groups: [{kind: sliding_window, block_size: 16, sliding_window: 48}, " + full64 + "]"
	for i, hash := range chain {
		if i%4 >= 1 {
			put("ordered", 0, []string{hash})
		}
		if i%4 == 3 {
			put("ordered", 1, []string{hash})
			put("sizes", 0, []string{hash})
			put("sizes", 1, []string{hash})
		}
	}
	file := configFile(t, strings.Join(chain, "\n"))
	const (
		cannot = "groups %s are stored alike, so their order cannot be checked here: "
		give   = "nothing seen here shows the order of groups %s: give a prompt that an engine has stored, by --tokens and --hashes-file, or "
		how    = "compare pool.groups with the engine's kv_cache_config.kv_cache_groups: vLLM's log tells only their number, a general plugin or a debugger prints them"
	)
	for name, test := range map[string]struct {
		pool   string
		prompt bool
		want   []string
	}{
		"stored alike":             {"model_name: alike, groups: [" + window32 + ", " + window32 + ", " + full16 + "]", true, []string{fmt.Sprintf(cannot, "0, 1 and 2") + how}},
		"stored alike, keys":       {"model_name: alike, groups: [" + window32 + ", " + window32 + ", " + full16 + "]", false, []string{fmt.Sprintf(cannot, "0, 1 and 2") + how}},
		"alike, of unequal sizes":  {"model_name: sizes, groups: [" + full64 + ", " + window16 + "]", true, []string{fmt.Sprintf(cannot, "0 and 1") + how}},
		"alike, the other way":     {"model_name: sizes, groups: [" + window16 + ", " + full64 + "]", true, []string{fmt.Sprintf(cannot, "0 and 1") + how}},
		"nothing to take for else": {"model_name: alike, groups: [" + full16 + ", " + full16 + ", " + full16 + "]", false, nil},
		"without a prompt":         {"model_name: ordered, " + window48Groups, false, []string{fmt.Sprintf(give, "0 and 1") + how}},
		"by a prompt":              {"model_name: ordered, " + window48Groups, true, nil},
		"too short":                {"model_name: short, " + swappedThin, true, []string{fmt.Sprintf(cannot, "0 and 1") + how}},
		"by many keys":             {"model_name: many, " + swappedThin, false, nil},
		"perhaps evicted": {"model_name: few, " + swappedThin, true, []string{
			"group 1, described as sliding_window, has 40 of the prompt's blocks and group 0, described as full_attention, 4: unless those were evicted, give pool.groups the order of the engine's kv_cache_groups",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--tokens", "640", "--hashes-file", file}
			if !test.prompt {
				args = nil
			}
			d := examined(t, "pool: {"+test.pool+"}\nbackend: {redis: {url: 'redis://"+server.Addr+"', timeout: 5s}}\n", args...)
			assert.Empty(t, d.Problems)
			var got []string
			for _, note := range d.Notes {
				if strings.Contains(note, " order ") {
					got = append(got, note)
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// The watcher looks at lookups with a hit until blocks have settled that they are those of
// pool.groups. It concludes nothing then from blocks that are absent.
func TestWatcherSettles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	chain := chainOf(r, nil, chained)
	watcherOf := func(groups string) (*watcher, keySet) {
		e := poolOf(t, "pool: {model_name: m, "+groups+"}\nbackend: {redis: {url: 'redis://h'}}\n")
		store := keySet{keys: map[string]bool{}}
		return newWatcher(e, store.remote(), slog.New(slog.DiscardHandler)), store
	}
	offered := func(w *watcher) prompt {
		require.Len(t, w.prompts, 1)
		return <-w.prompts
	}
	hit, missed := asked(chain), asked(chain)
	hit.Hit.Tokens = 640

	w, _ := watcherOf("groups: [" + full16 + "]")
	w.asked(hit)
	assert.Empty(t, w.prompts, "there is no other order")
	w, _ = watcherOf(thinnedGroups)
	w.asked(hit)
	assert.Empty(t, w.prompts, "groups that are stored alike")

	w, store := watcherOf("groups: [" + full64 + "]")
	w.asked(hit)
	assert.Empty(t, w.lookAtPrompt(t.Context(), offered(w)).Problems)
	assert.False(t, w.settled.Load(), "nothing was there, and blocks may contradict the block size")
	store.storePrompt(t, w.rules, chain, 640, func() bool { return false })
	assert.Empty(t, w.lookAtPrompt(t.Context(), promptOf(hit)).Problems)
	assert.True(t, w.settled.Load())
	w, _ = watcherOf("revision: 2026-08-17, tp_size: 2, num_kv_head: 1, groups: [" + full16 + ", " + mamba16 + "]")
	assert.False(t, w.settled.Load(), "groups on other ranks")

	gappy := func(w *watcher, store keySet) {
		for _, i := range []int{7, 15, 23} { // as if of blocks of 128 tokens
			store.keys[string(w.rules.AppendKey(nil, 1, 0, hit.Hashes.At(i)))] = true
		}
	}
	w, store = watcherOf(orderedGroups)
	gappy(w, store)
	w.asked(missed)
	assert.Len(t, w.lookAtPrompt(t.Context(), offered(w)).Problems, 1)

	w, store = watcherOf(orderedGroups)
	w.asked(hit)
	w.asked(hit)
	p := offered(w)
	assert.Empty(t, w.lookAtPrompt(t.Context(), p).Problems)
	assert.False(t, w.settled.Load(), "nothing was there")
	gappy(w, store)
	assert.Empty(t, w.lookAtPrompt(t.Context(), p).Problems, "the others may have been evicted")
	assert.False(t, w.settled.Load(), "blocks of one group")
	store.keys[string(w.rules.AppendKey(nil, 0, 0, hit.Hashes.At(7)))] = true
	assert.Empty(t, w.lookAtPrompt(t.Context(), p).Problems)
	assert.False(t, w.settled.Load(), "blocks that either group may have")
	w.wants.Store(true)
	w.asked(missed)
	p = offered(w)
	store.storePrompt(t, w.rules, chain, 640, func() bool { return false })
	assert.Empty(t, w.lookAtPrompt(t.Context(), p).Problems)
	assert.True(t, w.settled.Load())
	w.wants.Store(true)
	w.asked(hit)
	w.asked(missed)
	assert.Empty(t, w.prompts, "there is nothing more to look for")
}
