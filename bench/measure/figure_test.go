package measure

import (
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFigures(t *testing.T) {
	assert.InDelta(t, 2, Median([]float64{3, 1, 2}), 0)
	assert.InDelta(t, 1, Median([]float64{2, 1}), 0)
	assert.Equal(t, Spread{Median: 2, Min: 1, Max: 9}, SpreadOf([]float64{3, 1, 2, 9}))

	times := make([]time.Duration, 200)
	for i := range times {
		times[i] = time.Duration(i+1) * time.Microsecond
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 1, 50: 100, 99: 198, 99.4: 199, 99.9: 200, 100: 200} {
		assert.InDelta(t, want, PercentileUs(times, p), 0, p)
	}
	assert.InDelta(t, 1, PercentileUs(times[:1], 50), 0)
	h := hdrhistogram.New(1, 1000, 3)
	assert.Zero(t, OfHistogram(h, 50))
	var sorted []int64
	for i := range int64(200) {
		require.NoError(t, h.RecordValue(i+1))
		sorted = append(sorted, i+1)
		for _, p := range []float64{0, 0.5, 50, 90, 99, 99.4, 99.9, 100} {
			require.Equal(t, Percentile(sorted, p), OfHistogram(h, p), "%v of %d", p, i+1)
		}
	}
	long := hdrhistogram.New(1, 10_000_000, 5)
	assert.Equal(t, Latency{}, LatencyOf(long))
	for i := range int64(1000) {
		require.NoError(t, long.RecordValue((i+1)*1000))
	}
	l := LatencyOf(long)
	assert.InDeltaSlice(t, []float64{500, 900, 990, 999, 1000, 500.5}, []float64{l.P50us, l.P90us, l.P99us, l.P999us, l.MaxUs, l.MeanUs}, 0.02)
	assert.InDelta(t, 1.23, Micros(1234), 0)
	assert.InDelta(t, 0.667, Round(2.0/3, 3), 0)
}
