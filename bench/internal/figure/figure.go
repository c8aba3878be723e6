// Package figure makes the figures of a report out of what was measured.
package figure

import (
	"math"
	"slices"
	"time"
)

// Median returns the middle one of figures, the lower of two. There must be one.
func Median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[(len(sorted)-1)/2]
}

// Quantile returns the time in microseconds that a share of the sorted times is
// not above. There must be one.
func Quantile(sorted []time.Duration, share float64) float64 {
	at := int(math.Ceil(share*float64(len(sorted)))) - 1
	return Micros(sorted[max(at, 0)])
}

// Micros returns d in microseconds, to 0.01.
func Micros(d time.Duration) float64 { return math.Round(float64(d)/10) / 100 }

// Round3 keeps three digits behind the point.
func Round3(x float64) float64 { return math.Round(x*1000) / 1000 }
