package figure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFigures(t *testing.T) {
	assert.InDelta(t, 2, Median([]float64{3, 1, 2}), 0)
	assert.InDelta(t, 1, Median([]float64{2, 1}), 0)

	times := make([]time.Duration, 200)
	for i := range times {
		times[i] = time.Duration(i+1) * time.Microsecond
	}
	assert.InDelta(t, 100, Quantile(times, 0.5), 0)
	assert.InDelta(t, 198, Quantile(times, 0.99), 0)
	assert.InDelta(t, 1, Quantile(times[:1], 0.5), 0)
	assert.InDelta(t, 1.23, Micros(1234), 0)
	assert.InDelta(t, 0.667, Round3(2.0/3), 0)
}
