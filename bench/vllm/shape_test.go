package vllm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

func TestShapes(t *testing.T) {
	assert.Equal(t, []Shape{
		{Llama, 1, 16, 1}, {Llama, 1, 5000, 1}, {Llama, 8, 16, 1}, {Llama, 8, 5000, 1},
		{Llama, 1, 16, 4}, // one rank, short prompts
		{Hybrid, 8, 640, 1},
	}, Options{Hashes: []int{16, 5000}, TPs: []int{1, 8}, Engines: []int{1, 4}, HybridHashes: 640}.shapes())
	assert.Empty(t, Options{}.shapes())
}

func TestStored(t *testing.T) {
	for presence, want := range map[Presence][2]int{All: {640, 0}, Half: {320, 0}, FirstMissing: {640, 64}} {
		stored, skipped := Shape{Hybrid, 1, 640, 1}.stored(presence)
		assert.Equal(t, want, [2]int{stored, skipped}, presence)
	}
	_, skipped := Shape{Llama, 1, 640, 1}.stored(FirstMissing)
	assert.Equal(t, 1, skipped)
}

func TestValidate(t *testing.T) {
	good := Options{Release: "0.32.0", Hashes: []int{16}, TPs: []int{1}, Engines: []int{1}, Rounds: 1, Cell: time.Second, Timeout: time.Second}
	require.NoError(t, good.Validate())
	for text, change := range map[string]func(o *Options){
		"vLLM \"0.1.0\"; there are 0.24.0, ":   func(o *Options) { o.Release = "0.1.0" },
		"nothing to measure":                   func(o *Options) { o.Hashes = nil },
		"0 hashes of the model llama; give 1 ": func(o *Options) { o.Hashes = []int{0} },
		"tensor-parallel size \"3\"":           func(o *Options) { o.TPs = []int{3} },
		"0 engines":                            func(o *Options) { o.Engines = []int{0} },
		"127 hashes of the model hybrid; give": func(o *Options) { o.HybridHashes = 127 },
		"0 rounds":                             func(o *Options) { o.Rounds = 0 },
		"a duration of 0s":                     func(o *Options) { o.Cell = 0 },
		"a timeout of 0s":                      func(o *Options) { o.Timeout = 0 },
	} {
		o := good
		change(&o)
		err := o.Validate()
		require.ErrorIs(t, err, measure.ErrOptions)
		require.ErrorContains(t, err, text)
	}
}
