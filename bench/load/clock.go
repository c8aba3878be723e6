package load

import "github.com/HdrHistogram/hdrhistogram-go"

// byClock returns the latencies of a client that starts a request every interval ns,
// whether the one before was answered or not. For each latency longer than the interval
// it adds the waits of the requests that fell due meanwhile: one interval less, two
// less, and so on. This is the correction of HdrHistogram for an expected interval
// (Tene, "How NOT to Measure Latency").
//
// A closed loop sends nothing while it waits, so a stall of 100 ms is one latency
// among thousands. Its callers take the loop's own median as the interval.
func byClock(asked *hdrhistogram.Histogram, interval int64) *hdrhistogram.Histogram {
	seen := newHistogram()
	seen.Merge(asked)
	if interval < 1 {
		return seen
	}
	for _, bar := range asked.Distribution() {
		for wait := bar.To - interval; bar.Count > 0 && wait >= interval; wait -= interval {
			_ = seen.RecordValues(wait, bar.Count) // below what was recorded, so within bounds
		}
	}
	return seen
}
