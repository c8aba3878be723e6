package measure

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Percentile returns the p-th percentile of sorted figures. There must be one.
func Percentile[T cmp.Ordered](sorted []T, p float64) T {
	rank := int(math.Ceil(p/100*float64(len(sorted)) - 1e-9)) // less rounding errors: 99 % of 200 is rank 198
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// OfHistogram returns the p-th percentile of the values in a histogram, to its precision,
// or 0 if it is empty. The histogram's own percentiles round ranks to the nearest, which
// may be the one below.
func OfHistogram(h *hdrhistogram.Histogram, p float64) int64 {
	n := float64(h.TotalCount())
	rank := max(math.Ceil(p/100*n-1e-9), 1)
	return h.ValueAtPercentile(100 * rank / max(n, 1))
}

// OfHistogramUs is OfHistogram of nanoseconds, in microseconds to 0.01.
func OfHistogramUs(h *hdrhistogram.Histogram, p float64) float64 {
	return Micros(time.Duration(OfHistogram(h, p)))
}

// Latency is how long requests took, in microseconds to 0.01; 0 without any.
type Latency struct {
	P50us  float64 `json:"p50_us"`
	P90us  float64 `json:"p90_us"`
	P99us  float64 `json:"p99_us"`
	P999us float64 `json:"p999_us"`
	MaxUs  float64 `json:"max_us"`
	MeanUs float64 `json:"mean_us"`
}

// LatencyOf returns the figures of a histogram of nanoseconds.
func LatencyOf(h *hdrhistogram.Histogram) Latency {
	us := func(p float64) float64 { return OfHistogramUs(h, p) }
	return Latency{us(50), us(90), us(99), us(99.9), us(100), Micros(time.Duration(h.Mean()))}
}

// Median returns the median of figures in any order. There must be one.
func Median(figures []float64) float64 {
	return Percentile(slices.Sorted(slices.Values(figures)), 50)
}

// Spread is the median of figures that each round has one of, with the least and the largest.
// In JSON it is an object.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the spread of figures in any order, of which there must be one, each
// rounded to three digits behind the point.
func SpreadOf(figures []float64) Spread {
	return Spread{Round(Median(figures), 3), Round(slices.Min(figures), 3), Round(slices.Max(figures), 3)}
}

// RatioOf returns the spread of the ratios of figures to others, round by round. Both have the same number.
func RatioOf(figures, others []float64) Spread {
	ratios := make([]float64, len(figures))
	for i := range ratios {
		ratios[i] = figures[i] / others[i]
	}
	return SpreadOf(ratios)
}

// PercentileUs returns the p-th percentile of sorted times, in microseconds.
func PercentileUs(sorted []time.Duration, p float64) float64 { return Micros(Percentile(sorted, p)) }

// Micros returns d in microseconds, to 0.01.
func Micros(d time.Duration) float64 { return math.Round(float64(d)/10) / 100 } // Round would lose halves

// Round keeps some digits behind the point.
func Round(x float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(x*unit) / unit
}
