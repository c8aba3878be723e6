package statuspage

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/lookup/api"
)

// Quantiles are those of Prometheus' histogram_quantile, by hand.
func TestLatencySince(t *testing.T) {
	bounds := []float64{1, 2, 4}
	for _, test := range []struct {
		name        string
		before, now []uint64
		count       uint64
		want        []float64 // p50, p90, p99, p999
	}{
		{"nothing", []uint64{1, 2, 3, 4}, []uint64{1, 2, 3, 4}, 0, nil},
		{"the first bucket begins at 0", []uint64{0, 0, 0, 0}, []uint64{10, 0, 0, 0}, 10, []float64{0.5, 0.9, 0.99, 0.999}},
		{"spread over a bucket", []uint64{7, 5, 0, 0}, []uint64{7, 15, 0, 0}, 10, []float64{1.5, 1.9, 1.99, 1.999}},
		{"over two", []uint64{0, 0, 0, 0}, []uint64{5, 0, 5, 0}, 10, []float64{1, 3.6, 3.96, 3.996}},
		{"beyond all bounds", []uint64{0, 0, 0, 0}, []uint64{0, 0, 1, 99}, 100, []float64{4, 4, 4, 4}},
		{"without a sample", nil, []uint64{0, 1, 0, 0}, 1, []float64{1.5, 1.9, 1.99, 1.999}},
		{"never below 0", []uint64{9, 0, 0, 0}, []uint64{0, 2, 0, 0}, 2, []float64{1.5, 1.9, 1.99, 1.999}},
	} {
		got := latencySince(test.before, api.Histogram{Bounds: bounds, Counts: test.now})
		assert.Equal(t, test.count, got.Count, test.name)
		for i, q := range []*float64{got.P50, got.P90, got.P99, got.P999} {
			if test.want == nil {
				assert.Nil(t, q, test.name)
			} else {
				assert.InDelta(t, test.want[i], *q, 1e-9, "%s: %d", test.name, i)
			}
		}
	}
}
