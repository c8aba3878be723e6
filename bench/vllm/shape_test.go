//go:build linux

package vllm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

func TestCells(t *testing.T) {
	o := Options{Hashes: []int{16, 1875}, TPs: []int{1, 8}, HeldHashes: 5000}
	asks := map[Ask]int{}
	for _, c := range o.cells() {
		for _, ask := range c.asks {
			asks[ask]++
		}
	}
	assert.Equal(t, map[Ask]int{First: 20, Known: 8, Gone: 4, Again: 4, Blocked: 2, Turns: 2}, asks)
}

func TestValidate(t *testing.T) {
	good := Options{Release: "0.32.0", Hashes: []int{16}, TPs: []int{1, 8}, Rounds: 1, Cell: time.Second, Timeout: time.Second}
	require.NoError(t, good.Validate())
	for text, change := range map[string]func(o *Options){
		"vLLM \"0.1.0\"; there are 0.24.0, ": func(o *Options) { o.Release = "0.1.0" },
		"no number of hashes":                func(o *Options) { o.Hashes = nil },
		"0 hashes; give 1 ":                  func(o *Options) { o.Hashes = []int{0} },
		"a tensor-parallel size of 3":        func(o *Options) { o.TPs = []int{3} },
		"9 tensor-parallel sizes; give 1 to": func(o *Options) { o.TPs = []int{9} },
		"0 rounds":                           func(o *Options) { o.Rounds = 0 },
		"a duration of 0s":                   func(o *Options) { o.Cell = 0 },
		"a timeout of 0s":                    func(o *Options) { o.Timeout = 0 },
	} {
		o := good
		change(&o)
		err := o.Validate()
		require.ErrorIs(t, err, measure.ErrOptions)
		require.ErrorContains(t, err, text)
	}
}
