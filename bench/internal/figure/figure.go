// Package figure makes the figures of a report out of what was measured. All reports
// use these definitions, which docs/performance.md has for readers:
//
//   - The p-th percentile of figures is the least of them that p percent do not exceed
//     (nearest rank). The median is the 50th percentile.
//   - A percentile of latency is that of all requests of a measurement, over all its
//     rounds. What a round has one of, such as a rate or a ratio, counts by its median
//     over the rounds.
//   - The spread is the least and the largest of the rounds.
package figure

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

// Median returns the median of figures in any order. There must be one.
func Median(figures []float64) float64 {
	return Percentile(slices.Sorted(slices.Values(figures)), 50)
}

// Spread returns the median of figures in any order, the least and the largest. There
// must be one.
func Spread(figures []float64) (median, least, most float64) {
	return Median(figures), slices.Min(figures), slices.Max(figures)
}

// PercentileUs returns the p-th percentile of sorted times, in microseconds.
func PercentileUs(sorted []time.Duration, p float64) float64 { return Micros(Percentile(sorted, p)) }

// Micros returns d in microseconds, to 0.01.
func Micros(d time.Duration) float64 { return math.Round(float64(d)/10) / 100 }

// Round3 keeps three digits behind the point.
func Round3(x float64) float64 { return math.Round(x*1000) / 1000 }
