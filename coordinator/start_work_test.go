package coordinator

import (
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/oracle"
)

// farStart is a start in tokens: 2,000,000 hashes of 16, and blocks of every size below end there.
const farStart = 16 * 1_999_872

// startPools are pools of each shape of a search, of blocks of 16 hashes and more.
func startPools() map[string]Pool {
	wide := func(g Group, blocks int) Group { g.SlidingWindow = 16*blocks + 1; return g }
	short, covering := wide(window(16, 0), 4), wide(window(16, 0), 1000)
	return map[string]Pool{
		"full":                      {VLLM: NewestRelease()},
		"window":                    {VLLM: NewestRelease(), SchedulerBlockSize: 256, Groups: []Group{full(16), short}},
		"window alone":              {VLLM: NewestRelease(), SchedulerBlockSize: 256, Groups: []Group{short}},
		"window of all blocks":      {VLLM: NewestRelease(), SchedulerBlockSize: 256, Groups: []Group{full(16), covering}},
		"window longer than a run":  {VLLM: "0.26.0", SchedulerBlockSize: 256, Groups: []Group{full(16), eagle(short), short}},
		"window shorter than a run": {VLLM: "0.26.0", SchedulerBlockSize: 256, Groups: []Group{full(16), eagle(short)}},
		"eagle":                     {VLLM: NewestRelease(), SchedulerBlockSize: 256, UseEagle: true, Groups: []Group{full(16), short}},
		"mamba":                     {VLLM: NewestRelease(), Groups: []Group{full(16), mamba(64)}},
		"fine-grained": {VLLM: NewestRelease(), CacheHitAlignmentTokens: 16, Groups: []Group{
			full(64), align(mamba(64)), wide(window(32, 0), 8),
		}},
		"fine-grained, eagle": {VLLM: NewestRelease(), CacheHitAlignmentTokens: 16, UseEagle: true, Groups: []Group{full(64), align(mamba(64))}},
		"chunked local":       {VLLM: NewestRelease(), Groups: []Group{full(16), local(16, 1<<20)}},
		"ten groups":          {VLLM: NewestRelease(), Groups: append([]Group{full(16)}, slices.Repeat([]Group{short}, 9)...)},
	}
}

// work counts what finders do: searches, and the words of bitsets that they read.
type work struct{ searches, words int }

func (w *work) onRead(_ []int, from, to int) {
	w.searches++
	if from = max(0, from); from < to {
		w.words += (to-1)/64 - from/64 + 1
	}
}

func (w *work) total() int { return w.searches + w.words }

// contents choose which of n hashes behind a start are stored.
var contents = map[string]func(i, n int) bool{
	"all":             func(int, int) bool { return true },
	"none":            func(int, int) bool { return false },
	"half":            func(i, n int) bool { return i < n/2 },
	"all but first":   func(i, _ int) bool { return i >= 64 },
	"one of 64 lacks": func(i, _ int) bool { return i%64 != 17 },
}

// presenceFrom is that of n hashes behind a start.
func presenceFrom(c *Coordinator, start int64, n int, stored func(i, n int) bool) *Presence {
	p := &Presence{Start: start, NumHashes: int(start)/c.pool.HashBlockSize + n}
	for g := range c.groups {
		stride := c.KeyStride(g)
		mask, first := c.KeyMask(g), c.FirstPosition(g, start)
		list := make([]bool, n/stride)
		for i := range list {
			list[i] = mask.At(int64(first+i)) && stored(KeyIndex(i, stride), n)
		}
		p.Bits = append(p.Bits, bitsetFrom(list))
	}
	return p
}

// A lookup from far on does the work of one from token 0 of as many hashes, over presence and in rounds over
// a store, and so does an explanation.
func TestStartTakesNoWork(t *testing.T) {
	const n = 8192
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would empty the pool of lookups
	for name, pool := range startPools() {
		c := must(t, pool)
		var did [2]work
		var words [2]int
		var allocs [2]float64
		for far, start := range []int64{0, farStart} {
			tokens := start + 16*n
			for _, stored := range contents {
				p := presenceFrom(c, start, n, stored)
				p.onRead = did[far].onRead
				_, err := c.Answer(p, tokens, new(Scratch))
				require.NoError(t, err)
				_, _, err = c.Explain(p, p, tokens)
				require.NoError(t, err)
			}
			hashes := serial(n).From(start)
			l, err := c.newStoreLookup(tokens, hashes)
			require.NoError(t, err)
			for g := range c.groups {
				words[far] += len(l.presence.Bits[g]) + len(l.undetermined[g]) + len(l.wanted[g])
			}
			l.release()
			lookup := func() {
				_, err := c.Lookup(tokens, hashes, ExistsFunc(func(keys []string) ([]int, error) {
					return slices.Repeat([]int{1}, len(keys)), nil
				}))
				require.NoError(t, err)
			}
			allocs[far] = testing.AllocsPerRun(5, lookup)
		}
		t.Logf("%-26s from 0: %+v, from %d: %+v", name, did[0], farStart, did[1])
		assert.LessOrEqual(t, 10*did[1].total(), 11*did[0].total(), name)
		assert.Equal(t, words[0], words[1], name)
		if !raceEnabled { // it empties pools at random
			assert.Equal(t, allocs[0], allocs[1], name)
		}
	}
}

// Far from token 0 a prompt is the same wherever it lies: hits move with it, and the work is exactly the same.
func TestStartMovesWithThePrompt(t *testing.T) {
	below, none := 0, 0 // hits before the start, and near token 0
	for seed := range seedsFor(20_000) {
		random := rand.New(rand.NewPCG(seed, 3))
		slow := oracle.RandomPool(random)
		c := ofOracle(t, slow)
		far := int64(c.pool.SchedulerBlockSize)
		for _, g := range c.pool.Groups {
			far = lcm(far, max(1, int64(g.AttentionChunkSize)))
			for far <= 2*int64(g.SlidingWindow+g.ExtraRetainedTokens) {
				far *= 2
			}
		}
		far *= 4
		n := oracle.RandomChainLen(random, &slow)
		p := presenceFrom(c, far, n, func(int, int) bool { return random.IntN(8) > 0 })
		moved := *p
		moved.Start *= 1000
		moved.NumHashes += int(moved.Start-far) / c.pool.HashBlockSize
		tokens := far + int64(n*c.pool.HashBlockSize)
		var did [2]work
		p.onRead, moved.onRead = did[0].onRead, did[1].onRead
		hit, err := c.Answer(p, tokens, new(Scratch))
		movedHit, movedErr := c.Answer(&moved, tokens+moved.Start-far, new(Scratch))
		require.Equal(t, errorClass(err), errorClass(movedErr), seed)
		require.Equal(t, did[0], did[1], "seed %d, pool %+v", seed, c.pool)
		switch {
		case hit.Tokens < far/2:
			none++
		case hit.Tokens < far:
			below++
		}
		if hit.Tokens > far/2 { // others are of the prompt's beginning
			hit.Tokens += moved.Start - far
			for i := range hit.TailBoundaries {
				hit.TailBoundaries[i].Tokens += moved.Start - far
			}
		}
		require.Equal(t, hit, movedHit, "seed %d, pool %+v", seed, c.pool)
	}
	require.Greater(t, min(below, none), 100)
}
