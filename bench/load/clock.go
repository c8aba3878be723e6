package load

import "github.com/HdrHistogram/hdrhistogram-go"

// byClock returns the latencies of a client that starts a request as often as the median
// of the window takes, whether the one before was answered or not. For each latency
// longer than this interval it adds the waits of the requests that fell due meanwhile:
// one interval less, two less, and so on. This is the correction of HdrHistogram for an
// expected interval (Tene, "How NOT to Measure Latency").
//
// A closed loop sends nothing while it waits, so a stall of 100 ms is one latency
// among thousands. Its own median says how often it would have asked, but neither before
// the beginning nor after the end, so that edges stand only for what fell due between.
// Changes are not reported but keep others waiting as well.
func (w *window) byClock() *hdrhistogram.Histogram {
	seen := window{latency: newHistogram()}
	seen.latency.Merge(w.asked())
	interval := w.interval()
	if interval < 1 {
		return seen.latency
	}
	for _, e := range w.edges {
		for gone := interval; gone < e.to && e.latency-gone >= interval; gone += interval {
			if gone >= e.from {
				seen.took(e.latency - gone)
			}
		}
	}
	bars := w.latency.Distribution()
	if w.changes != nil {
		bars = append(bars, w.changes.Distribution()...)
	}
	for _, bar := range bars {
		for wait := bar.To - interval; bar.Count > 0 && wait >= interval; wait -= interval {
			_ = seen.latency.RecordValues(wait, bar.Count) // below what was recorded, so within bounds
		}
	}
	return seen.latency
}
