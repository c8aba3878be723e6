package vllm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// Percentiles are those of all lookups, also the median.
func TestTimes(t *testing.T) {
	got := times([]round{{micros: []float64{1, 2, 3}}, {micros: []float64{5}}, {micros: []float64{2, 9}}})
	assert.Equal(t, Times{P50: 2, Rounds: measure.Spread{Median: 2, Min: 2, Max: 5}, P99: 9, Max: 9, Requests: 6}, got)
	var hundreds []float64
	for i := range 200 {
		hundreds = append(hundreds, float64(i+1))
	}
	assert.InDelta(t, 198, times([]round{{micros: hundreds}}).P99, 0)
}

// A ratio is the median of the rounds' ratios.
func TestRow(t *testing.T) {
	c := measured()
	require.NoError(t, c.finish(hitlineStat{}, hitlineStat{Lookups: 6, Keys: 12}))
	r := c.row
	assert.Equal(t, measure.Spread{Median: 1.1, Min: 1, Max: 1.2}, r.P50Ratio, "not the ratio of two medians, 1.2")
	assert.Equal(t, measure.Spread{Median: 3, Min: 1.2, Max: 3}, r.P99Ratio)
	assert.InDelta(t, 2, r.HitlineKeys, 0)
}

// One seed makes the same chains, and another one others.
func TestSeed(t *testing.T) {
	seed := func(n uint64, s Shape, p Presence) string {
		return newCell(Options{Seed: n}, s, p).seed
	}
	one := Shape{Llama, 1, 16, 1}
	first := seed(1, one, All)
	assert.Equal(t, first, seed(1, one, All))
	for _, other := range []string{seed(2, one, All), seed(1, Shape{Llama, 1, 17, 1}, All), seed(1, one, Half)} {
		assert.NotEqual(t, first, other)
	}
}

func TestTable(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, Report{Setup: measure.NewSetup(4), Release: "0.32.0"}.WriteTable(&text))
	assert.Contains(t, text.String(), ", --seed 4\n")
}
