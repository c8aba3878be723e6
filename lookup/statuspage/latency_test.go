package statuspage

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/lookup/api"
)

// Quantiles are those of Prometheus' histogram_quantile, by hand.
func TestLatencySince(t *testing.T) {
	for _, test := range []struct {
		name        string
		before, now []uint64
		want        latency
	}{
		{"nothing", []uint64{1, 2, 3, 4}, []uint64{1, 2, 3, 4}, latency{}},
		{"the first bucket begins at 0", []uint64{0, 0, 0, 0}, []uint64{10, 0, 0, 0}, latency{10, new(0.5), new(0.99)}},
		{"spread over a bucket", []uint64{7, 5, 0, 0}, []uint64{7, 15, 0, 0}, latency{10, new(1.5), new(1.99)}},
		{"over two", []uint64{0, 0, 0, 0}, []uint64{5, 0, 5, 0}, latency{10, new(1.0), new(3.96)}},
		{"beyond all bounds", []uint64{0, 0, 0, 0}, []uint64{0, 0, 1, 99}, latency{100, new(4.0), new(4.0)}},
	} {
		assert.Equal(t, test.want, latencySince(test.before, api.Histogram{Bounds: []float64{1, 2, 4}, Counts: test.now}), test.name)
	}
}
