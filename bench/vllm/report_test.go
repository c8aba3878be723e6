//go:build linux

package vllm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// A ratio is the median of the rounds' ratios.
func TestRow(t *testing.T) {
	var r Row
	require.NoError(t, r.finish(measured, hitline, hitlineStat{}, hitlineStat{Lookups: 6, Keys: 12}))
	assert.Equal(t, measure.Spread{Median: 1.1, Min: 1, Max: 1.2}, r.P50Ratio, "not the ratio of two medians, 1.2")
	assert.Equal(t, measure.Spread{Median: 0.9, Min: 0.8, Max: 1}, r.Bytes.Ratio)
	assert.InDelta(t, 2, r.HitlineKeys, 0)
}

// One seed makes the same chains, and another one others.
func TestSeed(t *testing.T) {
	one := cell{Shape: Shape{1, 16}, Stored: All}
	seed := func(n uint64, c cell) string { return (&measurement{cell: c, o: Options{Seed: n}}).seed() }
	longer, half := one, one
	longer.Shape.Hashes, half.Stored = 17, Half
	assert.Equal(t, seed(1, one), seed(1, one))
	for _, other := range []string{seed(2, one), seed(1, longer), seed(1, half)} {
		assert.NotEqual(t, seed(1, one), other)
	}
}

func TestTable(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, Report{Setup: measure.NewSetup(4), Release: "0.32.0"}.WriteTable(&text))
	assert.Contains(t, text.String(), ", --seed 4\n")
}
