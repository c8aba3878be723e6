package measure

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// numBars is how many rows a histogram has, the last of them for what is above the 99th
	// percentile.
	numBars = 10
	// barWidth is the length of the longest bar, in characters.
	barWidth = 40
)

// Bars adds a short histogram of h, which has nanoseconds: the upper bound of each row in
// microseconds, how many values it has, and a bar. Bounds grow by one factor up to the 99th
// percentile, so that neither a long tail nor a narrow peak fills a single row.
func (t *Table) Bars(h *hdrhistogram.Histogram) {
	if h.TotalCount() == 0 {
		return
	}
	bounds := barBounds(h)
	counts, largest := make([]int64, len(bounds)), int64(0)
	for _, bar := range h.Distribution() {
		i := 0
		for i < len(bounds)-1 && bar.From > bounds[i] {
			i++
		}
		counts[i] += bar.Count
		largest = max(largest, counts[i])
	}
	t.Text("")
	for i, bound := range bounds {
		bar := strings.Repeat("■", int((counts[i]*barWidth+largest/2)/largest))
		line := fmt.Sprintf("%12s us %12s  %s", fmt.Sprintf("≤ %.1f", Micros(time.Duration(bound))), Grouped(counts[i]), bar)
		t.Text("%s", strings.TrimRight(line, " "))
	}
}

// barBounds returns the upper bounds of the rows in nanoseconds, the last of which is the maximum.
func barBounds(h *hdrhistogram.Histogram) (bounds []int64) {
	low, high := float64(h.Min()), float64(OfHistogram(h, 99))
	for i := 1; i < numBars && high > 1.1*low; i++ {
		bounds = append(bounds, int64(low*math.Pow(high/low, float64(i)/(numBars-1))))
	}
	if n := len(bounds); n == 0 || bounds[n-1] < h.Max() {
		bounds = append(bounds, h.Max())
	}
	return bounds
}
