//go:build linux

package load

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
)

// window is what one worker measured in a stretch of time; ns of the run.
type window struct {
	from, to  int64
	latency   *hdrhistogram.Histogram // of lookups, ns
	requests  int64
	unsent    int64 // that fell due and were not sent
	leastWait int64 // of those and of the abandoned, ns; 0 without any
	last      bool  // of its worker in this stage
	summed    int   // windows that were added, of a sum
}

// maxLatency is the longest latency told apart, in nanoseconds. Three digits up to
// there take 270 KB.
const maxLatency = int64(time.Hour)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency, 3) }

// collector merges the windows of all workers. Workers call fresh and send to full;
// one goroutine calls collect.
type collector struct {
	full chan *window
	free chan *window
}

func newCollector(workers int) *collector {
	return &collector{full: make(chan *window, 4*workers), free: make(chan *window, 4*workers)}
}

// fresh returns an empty window.
func (c *collector) fresh(from, to int64) *window {
	select {
	case w := <-c.free:
		w.from, w.to = from, to
		return w
	default:
		return &window{from: from, to: to, latency: newHistogram()}
	}
}

// roll hands in the windows that are over by now, w and those behind it, and returns
// the one that is not; nil for nil. Windows are of one length, up to the end.
func (c *collector) roll(w *window, now, end, length int64) *window {
	for w != nil && now >= w.to && w.to <= end {
		next := c.fresh(w.to, w.to+length)
		c.full <- w
		w = next
	}
	return w
}

// reuse takes a window back.
func (c *collector) reuse(w *window) {
	w.latency.Reset()
	*w = window{latency: w.latency}
	select {
	case c.free <- w:
	default: // enough of them
	}
}

// took records the latency of a lookup, in nanoseconds.
func (w *window) took(ns int64) {
	_ = w.latency.RecordValue(min(max(ns, 1), maxLatency)) // within bounds it does not fail
}

// abandoned records a lookup that began at start and has no answer yet, in a run that is
// cut short: its latency would have been longer.
func (w *window) abandoned(start, now int64) {
	w.took(now - start)
	w.leastWait = leastOf(w.leastWait, now-start)
}

// recordUnsent records a lookup that fell due so many ns ago and was never sent: its
// latency would have been longer.
func (w *window) recordUnsent(ns int64) {
	w.took(ns)
	w.unsent++
	w.leastWait = leastOf(w.leastWait, max(ns, 1))
}

// leastOf returns the lesser of two waits; 0 stands for none.
func leastOf(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// add adds what another window measured.
func (w *window) add(other *window) {
	w.from, w.to = min(w.from, other.from), max(w.to, other.to)
	w.latency.Merge(other.latency)
	w.requests += other.requests
	w.unsent += other.unsent
	w.leastWait = leastOf(w.leastWait, other.leastWait)
}

// measured is what all workers measured in one step.
type measured struct {
	total   window    // from the first window to the last
	medians []float64 // of those that have lookups, in microseconds
}

// collect takes the windows of one step until each worker has sent its last. It calls each with
// a sample: what all workers have measured in one window.
func (c *collector) collect(workers int, each func(Sample)) *measured {
	m := &measured{total: window{from: math.MaxInt64, latency: newHistogram()}}
	sums := map[int64]*window{} // by the beginning
	for left := workers; left > 0; {
		w := <-c.full
		m.total.add(w)
		if w.last {
			left--
			c.reuse(w)
			continue
		}
		have := sums[w.from]
		if have == nil {
			have = c.fresh(w.from, w.to)
			sums[w.from] = have
		}
		have.add(w)
		if have.summed++; have.summed == workers {
			sample := have.sample(m.total.from)
			if have.latency.TotalCount() > 0 {
				m.medians = append(m.medians, sample.P50us)
			}
			each(sample)
			delete(sums, w.from)
			c.reuse(have)
		}
		c.reuse(w)
	}
	return m
}

// sample sums a window up that all workers have measured.
func (w *window) sample(begin int64) Sample {
	return Sample{
		Elapsed:           seconds(w.to - begin),
		RequestsPerSecond: perSecond(w.requests, w.to-w.from),
		P50us:             measure.OfHistogramUs(w.latency, 50),
		P99us:             measure.OfHistogramUs(w.latency, 99),
	}
}
