package histogram

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/api"
)

// A value belongs to the first bucket whose bound it does not exceed, and those beyond all bounds to the last.
func TestMerge(t *testing.T) {
	bounds := []int64{10, 20, 50}
	var a, b Counts
	for _, v := range []int64{0, 10, 11, 20, 50, 51} {
		a.Observe(bounds, v, 1)
	}
	b.Observe(bounds, 1000, 3)
	require.Equal(t, api.Histogram{Bounds: []float64{5, 10, 25}, Counts: []uint64{2, 2, 1, 4}, Sum: (142 + 3000) / 2}, Merge(bounds, 2, &a, &b))
	require.Equal(t, api.Histogram{Bounds: []float64{10, 20, 50}, Counts: make([]uint64, 4)}, Merge(bounds, 1))
}
