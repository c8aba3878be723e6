package vllm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// The stores come one after the other, each with more keys than the one before.
func TestCells(t *testing.T) {
	o := Options{Hashes: []int{16, 1875}, TPs: []int{1, 8}, HybridHashes: 640, HeldHashes: 5000, StoreKeys: []int{1_000_000, 30_000}, Grouped: true, Blocked: 1}
	var stores []Store
	asks := map[Ask]int{}
	for _, c := range o.cells() {
		if len(stores) == 0 || stores[len(stores)-1] != c.Store {
			stores = append(stores, c.Store)
		}
		for _, ask := range c.asks {
			asks[ask]++
		}
	}
	assert.Equal(t, []Store{{30_000, false}, {30_000, true}, {1_000_000, false}}, stores)
	assert.Equal(t, map[Ask]int{First: 3*16 + 4, Again: 3 * 4, Blocked: 2, Turns: 2}, asks)
	assert.Empty(t, Options{}.cells())
}

func TestValidate(t *testing.T) {
	good := Options{Release: "0.32.0", Hashes: []int{16}, TPs: []int{1}, StoreKeys: []int{100}, Rounds: 1, Cell: time.Second, Timeout: time.Second}
	require.NoError(t, good.Validate())
	for text, change := range map[string]func(o *Options){
		"vLLM \"0.1.0\"; there are 0.24.0, ":   func(o *Options) { o.Release = "0.1.0" },
		"nothing to measure":                   func(o *Options) { o.Hashes = nil },
		"0 hashes of the model llama; give 1 ": func(o *Options) { o.Hashes = []int{0} },
		"tensor-parallel size \"3\"":           func(o *Options) { o.TPs = []int{3} },
		"nothing to measure: give":             func(o *Options) { o.StoreKeys = nil },
		"0 keys of the store":                  func(o *Options) { o.StoreKeys = []int{0} },
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
