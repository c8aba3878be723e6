package vllm

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/bench/measure"
)

// Each row is required what its workload, prompts and tensor-parallel size are.
func TestRequirements(t *testing.T) {
	other := func(ratio float64) *Other {
		return &Other{Times{P50: 10, P99: 20}, measure.Spread{Median: ratio}}
	}
	row := func(ask Ask, stored Presence, tp, hashes int, ratio float64) Row {
		return Row{Shape: Shape{Llama, tp, hashes}, Ask: ask, Stored: stored, P50Ratio: measure.Spread{Median: ratio}, Hitline: Times{P50: 400, P99: 1000}}
	}
	withBytes := func(r Row, ratio float64) Row { r.Bytes = other(ratio); return r }
	withBefore := func(r Row, ratio float64) Row { r.Before = other(ratio); return r }
	grouped := row(First, Half, 8, 1875, 1)
	grouped.Grouped = true
	for _, c := range []struct {
		row  Row
		want string
	}{
		{row(First, All, 1, 1875, 4.6), "ratio 4.60 ≥ 4.5: met"},
		{row(First, All, 8, 1875, 2.5), "ratio 2.50 ≥ 2.6: missed"},
		{row(First, Half, 8, 1875, 3), "ratio 3.00 ≥ 3: met"},
		{withBytes(row(First, RandomCut, 8, 1875, 2.5), 0.8), "ratio 2.50 ≥ 2.6: missed"},
		{withBytes(row(First, RandomCut, 8, 1875, 2.5), 0.81), "instead of ratio 2.6 bytes / hitline 0.81 ≥ 0.8: met"},
		{withBytes(row(First, All, 1, 1875, 5), 0.9), "ratio 5.00 ≥ 4.5: met; p99/p50, to that of bytes 1.25 ≤ 1.2: missed"},
		{row(First, Half, 1, 1875, 1), ""},
		{row(First, All, 1, 16, 1), ""},
		{withBefore(row(First, All, 1, 16, 1), 0.94), "before / hitline 0.94 ≥ 0.95: missed"},
		{withBefore(row(First, FirstMissing, 8, 1875, 1), 1), "before / hitline 1.00 ≥ 0.95: met"},
		{row(Again, All, 8, 1875, 99), "ratio 99.00 ≥ 100: missed"},
		{row(Turns, All, 1, 5000, 21), "ratio 21.00 ≥ 20: met"},
		{row(Blocked, All, 8, 1875, 1), "ms a step 0.40 ≤ 0.5: met"},
		{grouped, ""},
	} {
		c.row.Required = c.row.requirements()
		assert.Equal(t, c.want, c.row.verdict(), "%v", c.row)
	}
}
