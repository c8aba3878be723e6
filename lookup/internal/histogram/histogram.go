// Package histogram counts observations by bucket.
package histogram

import (
	"sync/atomic"

	"github.com/hitline/hitline/lookup/api"
)

// maxBounds is how many bounds a histogram has at most.
const maxBounds = 19

// Counts is a histogram. The zero value is empty. All calls with it need the same bounds: at most maxBounds upper
// bounds of its buckets, ascending. Safe for concurrent use.
type Counts struct {
	buckets [maxBounds + 1]atomic.Int64 // the one behind the last bound has what is beyond all
	sum     atomic.Int64
}

// Observe counts a value a number of times.
func (c *Counts) Observe(bounds []int64, value, times int64) {
	i := 0
	for i < len(bounds) && value > bounds[i] {
		i++
	}
	c.buckets[i].Add(times)
	c.sum.Add(value * times)
}

// Merge returns the sum of histograms, with bounds and values divided by unit.
func Merge(bounds []int64, unit float64, all ...*Counts) api.Histogram {
	h := api.Histogram{Bounds: make([]float64, len(bounds)), Counts: make([]uint64, len(bounds)+1)}
	for i, b := range bounds {
		h.Bounds[i] = float64(b) / unit
	}
	for _, c := range all {
		for i := range h.Counts {
			h.Counts[i] += uint64(c.buckets[i].Load())
		}
		h.Sum += float64(c.sum.Load()) / unit
	}
	return h
}
