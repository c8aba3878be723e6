//go:build linux

package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
)

// tally is what one worker measured in one step, or all of them. Times are ns of the run.
type tally struct {
	from, to int64
	latency  *hdrhistogram.Histogram // of lookups, ns
	requests int64
	unsent   int64 // that fell due and were not sent
	minWait  int64 // of those and of the abandoned, ns; 0 without any
}

// maxLatency is the longest latency told apart, in nanoseconds. Three digits up to
// there take 270 KB.
const maxLatency = int64(time.Hour)

func newTally(from int64) *tally {
	return &tally{from: from, to: from, latency: hdrhistogram.New(1, maxLatency, 3)}
}

// took records the latency of a lookup, in nanoseconds.
func (t *tally) took(ns int64) {
	_ = t.latency.RecordValue(min(max(ns, 1), maxLatency)) // within bounds it does not fail
}

// abandoned records a lookup that began at start and has no answer yet, in a run that is
// cut short: its latency would have been longer.
func (t *tally) abandoned(start, now int64) {
	t.took(now - start)
	t.minWait = minSet(t.minWait, now-start)
}

// recordUnsent records a lookup that fell due so many ns ago and was never sent: its
// latency would have been longer.
func (t *tally) recordUnsent(ns int64) {
	t.took(ns)
	t.unsent++
	t.minWait = minSet(t.minWait, max(ns, 1))
}

// minSet returns the lesser of two waits; 0 stands for none.
func minSet(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// add adds what another worker measured in the same step.
func (t *tally) add(other *tally) {
	t.to = max(t.to, other.to)
	t.latency.Merge(other.latency)
	t.requests += other.requests
	t.unsent += other.unsent
	t.minWait = minSet(t.minWait, other.minWait)
}

// step sums up what was measured at a rate, of lookups of the given number of hashes.
func (t *tally) step(rate float64, hashes int) Step {
	s := Step{Rate: rate, Requests: t.requests}
	s.Latency, s.Unsent, s.AtLeast = measure.LatencyOf(t.latency), t.unsent, measure.Micros(time.Duration(t.minWait))
	if t.to > t.from {
		s.Seconds = seconds(t.to - t.from)
		s.RequestsPerSecond = perSecond(t.requests, t.to-t.from)
		s.HashesPerSecond = perSecond(t.requests*int64(hashes), t.to-t.from)
	}
	return s
}

func seconds(ns int64) float64            { return measure.Round(float64(ns)/1e9, 6) }
func perSecond(n int64, ns int64) float64 { return measure.Round(float64(n)/(float64(ns)/1e9), 1) }
