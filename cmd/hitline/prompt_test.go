package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
)

// poolOf is what a configuration file describes.
func poolOf(t *testing.T, text string) expected {
	cfg, err := config.Load(config.Source{File: configFile(t, text)})
	require.NoError(t, err)
	rules, err := coordinator.New(cfg.Pool)
	require.NoError(t, err)
	return expected{cfg, rules}
}

// An engine sends the hashes of all tokens, and of some after them.
func TestFitsBlockSize(t *testing.T) {
	e := poolOf(t, "pool: {hash_block_size: 16, groups: [{kind: full_attention, block_size: 64}]}\n") // aligned to 64
	for _, test := range []struct {
		tokens int64
		hashes int
		fits   bool
	}{
		{640, 40, true}, {640, 43, true}, {640, 70, true}, // the last two in the middle of an answer
		{640, 39, false}, {640, 20, false}, // a hash stands for more
		{640, 80, false}, {640, 87, false}, {640, 160, false}, {640, 640, false}, // or for less
		{640, 90, true}, {640, 100, true}, {640, 159, true}, {640, 5000, true}, // a long answer
		{640, 0, true}, {48, 1, true}, {0, 9, true}, // too little to tell
	} {
		assert.Equal(t, test.fits, e.fitsBlockSize(test.tokens, test.hashes), "%d tokens, %d hashes", test.tokens, test.hashes)
	}
}

// Of how many hashes one is stored shows in which of them are.
func TestStep(t *testing.T) {
	for have, want := range map[string]int{
		"": 0, "....": 0, "x": 0, "xx": 0, "xxx": 1, "xxxx....": 1, ".x.x.x..": 2, "...x...x...x": 4,
		"...x...x": 0, // too few
		"x.x.x":    0, // no block begins so
		".xxx":     0, // the first one is gone
		".x.x...x": 0, // one in the middle is gone
		"xx.xx":    0,
	} {
		h := held{}
		for _, c := range have {
			h.have = append(h.have, c == 'x')
			if c == 'x' {
				h.count++
			}
		}
		assert.Equal(t, want, h.step(), have)
	}
}

// A few keys of many do not show what is missing.
func TestPartOfTheKeys(t *testing.T) {
	e := poolOf(t, "pool: {model_name: m, tp_size: 2, num_kv_head: 2}\nbackend: {redis: {url: 'redis://h'}}\n")
	sampled := func(n int, complete bool) (f findings) {
		keys := []string{}
		for i := range n {
			keys = append(keys, e.rules.KeyPrefix(0, coordinator.Rank{})+hashesOf("h", n, 32)[i])
		}
		e.compare(newSample(keys, nil, complete), &f)
		return f
	}
	assert.Empty(t, sampled(20, false).Problems)
	assert.Len(t, sampled(20, true).Problems, 1)
	assert.Len(t, sampled(telling*2, false).Problems, 1, "that many do")
}
