package connector_test

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/connector"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/oracle"
	"github.com/hitline/hitline/netproto"
)

// block is a block of a store: a store group and the number of its hash.
type block struct{ group, hash int }

// chunk is a chunk of a store group.
type chunk struct {
	group  int
	number int64
}

// engine is one request in a random pool, over a store in memory.
type engine struct {
	*rand.Rand
	*testing.T
	seed   uint64
	slow   oracle.Pool
	rules  *coordinator.Coordinator
	tokens int // of the prompt
	hashes int
	store  map[block]bool
}

func newEngine(t *testing.T, seed uint64) *engine {
	e := &engine{Rand: rand.New(rand.NewPCG(seed, 5)), T: t, seed: seed, store: map[block]bool{}}
	e.slow = oracle.RandomPool(e.Rand)
	for e.slow.Revision == oracle.Rev20260604 { // has no lookups
		e.slow = oracle.RandomPool(e.Rand)
	}
	if e.IntN(2) == 0 {
		interval := e.IntN(4) * e.slow.SchedulerBlockSize
		e.slow.RetentionInterval = &interval
	}
	var err error
	e.rules, err = coordinator.New(poolOf(t, e.slow))
	require.NoError(t, err, "seed %d", seed)
	e.tokens = oracle.RandomChainLen(e.Rand, &e.slow)*e.slow.HashBlockSize + e.IntN(e.slow.HashBlockSize)
	e.hashes = e.tokens / e.slow.HashBlockSize
	return e
}

// poolOf returns a coordinator's configuration of a pool.
func poolOf(t *testing.T, slow oracle.Pool) (pool coordinator.Pool) {
	revision, err := coordinator.ParseRelease(slow.Revision)
	release := err == nil
	if release {
		slow.Revision = oracle.Rev20260620 // whose name JSON has
	}
	text, err := json.Marshal(slow)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &pool))
	if release {
		pool.Revision = revision
	}
	return pool
}

// Stored step by step, each block is stored once, and all are those of the slow store mask. A
// second request of the prompt has the slow lookup's hit, and what it is told to load is
// stored.
func TestRequestsOfRandomPools(t *testing.T) {
	const seeds = 3_000
	hits, inChunk := 0, 0
	for seed := range uint64(seeds) {
		e := newEngine(t, seed)
		e.prefill()
		e.handOver()
		tokens := e.tokens
		for range 3 {
			hit := e.match(tokens)
			if hit > 0 {
				hits++
			}
			if hit%int64(e.slow.SchedulerBlockSize) != 0 {
				inChunk++
			}
			tokens = e.IntN(e.tokens + 1)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d hits, %d of them inside a scheduler block", hits, inChunk)
	assert.Greater(t, hits, seeds/4)
	assert.Greater(t, inChunk, 10)
}

// prefill computes the prompt in steps, and stores what StoreRuns says.
func (e *engine) prefill() {
	stored := map[chunk]bool{}
	for from := 0; ; {
		tokens := min(e.tokens, from+1+e.IntN(max(1, e.tokens)))
		runs, err := connector.StoreRuns(e.rules, int64(from), int64(tokens), int64(e.tokens))
		require.NoError(e, err, "seed %d", e.seed)
		for _, run := range runs {
			for number, hash := range run.Hashes() {
				assert.False(e, stored[chunk{run.Group, number}], "seed %d: chunk %d of group %d is stored again", e.seed, number, run.Group)
				stored[chunk{run.Group, number}] = true
				e.store[block{run.Group, hash}] = true
			}
		}
		if from = tokens; from == e.tokens {
			break
		}
	}
	aligned := int64(e.tokens) / e.rules.Alignment() * e.rules.Alignment()
	masks, class := e.slow.StoreMask(int(aligned), 0, &e.tokens)
	require.Empty(e, class)
	want := map[chunk]bool{}
	for number, g := range e.slow.StoreGroups() {
		for i, keep := range masks[g].Entries {
			if keep {
				want[chunk{number, int64(i)}] = true
			}
		}
	}
	assert.Equal(e, want, stored, "seed %d", e.seed)
}

// handOver stores mamba states, and in fine-grained mode other blocks, at some boundaries.
func (e *engine) handOver() {
	align := int(e.rules.Alignment())
	for range e.IntN(4) {
		tokens := e.IntN(e.tokens/align+1) * align
		for g := range e.rules.NumGroups() {
			if tokens == 0 || e.rules.Group(g).Kind != coordinator.Mamba && !e.rules.FineGrained() {
				continue
			}
			run, err := connector.BlockAt(e.rules, g, int64(tokens))
			require.NoError(e, err, "seed %d", e.seed)
			for _, hash := range run.Hashes() {
				assert.Equal(e, tokens/e.slow.HashBlockSize-1, hash)
				e.store[block{g, hash}] = true
			}
		}
	}
}

// match looks the first tokens of the prompt up and checks what is to be loaded.
func (e *engine) match(tokens int) (hit int64) {
	n := tokens / e.slow.HashBlockSize
	list, blob := make([]string, n), []byte(nil)
	for i := range n {
		blob = binary.BigEndian.AppendUint32(blob, uint32(i))
		list[i] = string(blob[4*i:])
	}
	number := func(hash []byte) int { return int(binary.BigEndian.Uint32(hash)) }
	hashes := netproto.NewHashes(blob, 4)
	s := connector.NewScheduler(e.rules, connector.LookupFunc(func(n int64, h netproto.Hashes) (coordinator.Hit, error) {
		return e.rules.LookupBlocks(n, h, func(group int, hash []byte) bool { return e.store[block{group, number(hash)}] })
	}))
	computed := int64(e.IntN(tokens + 1))
	m, ready, err := s.Match("r", int64(tokens), computed, hashes)
	assert.True(e, ready)
	want, tails, class := e.wantHit(tokens, list, func(group, hash int) bool { return e.store[block{group, hash}] })
	if class != "" {
		assert.Error(e, err, "seed %d: %s", e.seed, class)
		return 0
	}
	require.NoError(e, err, "seed %d", e.seed)
	assert.EqualValues(e, want, m.Hit.Tokens, "seed %d", e.seed)
	assert.Len(e, m.Hit.TailBoundaries, len(tails))
	assert.Equal(e, max(0, int64(want)-computed), m.Tokens, "seed %d", e.seed)
	e.load(m.Hit, computed, n, tokens)
	return m.Hit.Tokens
}

// wantHit is the scheduler's part of the specification over the slow lookup.
func (e *engine) wantHit(tokens int, hashes []string, stored func(group, hash int) bool) (hit int, tails []oracle.Boundary, class string) {
	asked, lcm := tokens, e.slow.SchedulerBlockSize
	if e.rules.NeedsAligned() {
		asked = tokens / lcm * lcm
	}
	numbers := map[int]int{}
	for number, g := range e.slow.StoreGroups() {
		numbers[g] = number
	}
	hit, tails, class = e.slow.LookupTails(asked, hashes, func(g int, _ oracle.Rank, hash string) bool {
		return stored(numbers[g], int(binary.BigEndian.Uint32([]byte(hash))))
	})
	if e.rules.NeedsAligned() && hit == tokens && hit > 0 {
		hit = (tokens - 1) / lcm * lcm
	}
	return hit, tails, class
}

// load checks that LoadRuns has the chunks of the slow load mask, and that they are stored.
func (e *engine) load(hit coordinator.Hit, computed int64, hashes, tokens int) {
	runs, err := connector.LoadRuns(e.rules, hit, computed, hashes)
	require.NoError(e, err, "seed %d", e.seed)
	loaded, want := map[chunk]bool{}, map[chunk]bool{}
	for _, run := range runs {
		for number, hash := range run.Hashes() {
			loaded[chunk{run.Group, number}] = true
			assert.True(e, e.store[block{run.Group, hash}] || e.mayLack(hit, run.Group, number, tokens),
				"seed %d: hit %d, group %d: hash %d is not stored", e.seed, hit.Tokens, run.Group, hash)
		}
	}
	if hit.Tokens > computed {
		_, masks, class := e.slow.FindHit(nil, hashes, int(hit.Tokens), false)
		require.Empty(e, class)
		for number, g := range e.slow.StoreGroups() {
			size := int64(e.slow.Groups[g].BlockSize)
			for i, keep := range masks[g] {
				if keep && int64(i+1)*size > computed && int64(i)*size < hit.Tokens {
					want[chunk{number, int64(i)}] = true
				}
			}
		}
	}
	assert.Equal(e, want, loaded, "seed %d: hit %d, computed %d", e.seed, hit.Tokens, computed)
}

// mayLack reports whether the reference too can be told to load a chunk that is not stored.
func (e *engine) mayLack(hit coordinator.Hit, group int, number int64, tokens int) bool {
	g := e.rules.Group(group)
	switch {
	case e.rules.NeedsAligned() && tokens < e.tokens && int64(tokens)-hit.Tokens == e.rules.Alignment():
		return true // a lowered hit: the store need not have the window or state there
	case e.rules.NeedsAligned() && e.hasEagleMamba():
		return true // which can make the hit longer than what the other groups have
	case e.rules.FineGrained() && !e.rules.HasTailBoundaries() && (number+1)*int64(g.BlockSize) > hit.Tokens:
		return true // under another hash of the chunk
	}
	return g.SlidingWindow == 1 // no token before the next one: store masks leave it out
}

func (e *engine) hasEagleMamba() bool {
	for g := range e.rules.NumGroups() {
		if e.rules.Group(g).Kind == coordinator.Mamba && e.rules.IsEagle(g) {
			return true
		}
	}
	return false
}
