package compare

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench"
)

func TestWorkload(t *testing.T) {
	const hashes, tokens = 30, 16
	for at, right := range map[string]func(block int) bool{
		MissFirst:  func(block int) bool { return block == 0 },
		MissMiddle: func(block int) bool { return block == 15 },
		MissTail:   func(block int) bool { return block == 29 },
		MissRandom: func(block int) bool { return block < hashes },
	} {
		whole, w := newWorkload(hashes, tokens, 600), newWorkload(hashes, tokens, 600)
		w.cut(0.9, at, tokens)
		require.Equal(t, 20, w.len())
		cut := 0
		for i := range w.len() {
			stored, asked := whole.strings(i), w.strings(i)
			block := 0
			for block < hashes && stored[block] == asked[block] {
				block++
			}
			assert.EqualValues(t, block*tokens, w.want[i])
			if block < hashes {
				cut++
				assert.True(t, right(block), "%s: %d", at, block)
				assert.Equal(t, stored[block+1:], asked[block+1:], "only one hash is another")
			}
		}
		assert.Equal(t, 2, cut)
		slices.Sort(w.order)
		for i, chain := range w.order {
			assert.Equal(t, i, chain, "each once")
		}
	}
}

func TestWorkloadSizes(t *testing.T) {
	assert.Equal(t, MinChains, newWorkload(100, 16, 1).len())
	assert.Equal(t, 11, newWorkload(100, 16, 1001).len())
	a, b := newWorkload(64, 16, 1), newWorkload(65, 16, 1)
	assert.False(t, bytes.Contains(b.blob, a.hash(0, 0)), "no workload finds another's hashes")
	for share, want := range map[float64]int{1: 0, 0: 10, 0.9: 1, 0.99: 1, 0.5: 5} {
		w := newWorkload(10, 16, 100)
		w.cut(share, MissFirst, 16)
		misses := 0
		for _, hit := range w.want {
			if hit == 0 {
				misses++
			}
		}
		assert.Equal(t, want, misses, "%v", share)
	}
}

func TestValidate(t *testing.T) {
	require.NoError(t, small().Validate())
	for want, break_ := range map[string]func(*Options){
		"no number of hashes":          func(o *Options) { o.Hashes = nil },
		"0 hashes; 1 to 2000000 fit":   func(o *Options) { o.Hashes = []int{5, 0} },
		"2000001 hashes;":              func(o *Options) { o.Hashes = []int{2_000_001} },
		"[5 6 5]: one of them is":      func(o *Options) { o.Hashes = []int{5, 6, 5} },
		"a hash of 0 tokens;":          func(o *Options) { o.HashTokens = 0 },
		"0 entries;":                   func(o *Options) { o.Entries = 0 },
		"0 rounds;":                    func(o *Options) { o.Rounds = 0 },
		"0s for each figure;":          func(o *Options) { o.Cell = 0 },
		"a share of 1.5 that hits;":    func(o *Options) { o.HitShare = 1.5 },
		"a miss at \"end\";":           func(o *Options) { o.MissAt = "end" },
		"no rival is called \"rédis\"": func(o *Options) { o.Only = []string{Floor, "rédis"} },
		"client on core 1, servers o":  func(o *Options) { o.ClientCore = 1 },
		"a timeout of 0s;":             func(o *Options) { o.Timeout = 0 },
	} {
		o := small()
		break_(&o)
		err := o.Validate()
		require.ErrorIs(t, err, bench.ErrOptions, want)
		assert.ErrorContains(t, err, want)
	}
	o := small()
	assert.True(t, o.wants(Python))
	o.Only = []string{Floor}
	assert.Equal(t, []bool{true, true, false}, []bool{o.wants(Floor), o.wants(Hitline), o.wants(Python)})
}
