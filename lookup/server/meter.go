package server

import (
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// Upper bounds of the histograms' buckets: what a lookup took in nanoseconds, 1-2-5
// from 5 µs to 5 s, and how many hashes it had.
var (
	durationBounds = [...]int64{
		5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9, 2e9, 5e9,
	}
	hashBounds = [...]int64{16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20}
)

// meter is what one event loop measures of the lookups that it answers. Loops have
// one each, a cache line apart, so that counting costs them a few nanoseconds.
type meter struct {
	durations tally
	hashes    tally
	_         [64]byte
}

// tally counts observations by bucket; those beyond all bounds are in the bucket
// behind the last bound.
type tally struct {
	buckets [len(durationBounds) + 1]atomic.Int64
	sum     atomic.Int64
}

// observe counts the same value a number of times.
func (t *tally) observe(bounds []int64, value, times int64) {
	i := 0
	for i < len(bounds) && value > bounds[i] {
		i++
	}
	t.buckets[i].Add(times)
	t.sum.Add(value * times)
}

// took notes that lookups took so many nanoseconds each.
func (m *meter) took(nanos, lookups int64) { m.durations.observe(durationBounds[:], nanos, lookups) }

// asked notes how many hashes a lookup had.
func (m *meter) asked(hashes int) { m.hashes.observe(hashBounds[:], int64(hashes), 1) }

// Histogram is how observations spread over buckets, since the start.
type Histogram struct {
	Bounds []float64 // upper bounds of the buckets, ascending
	Counts []uint64  // observations of each bucket alone; the last is of those beyond all bounds
	Sum    float64   // of all that was observed
}

// newHistogram adds up the tallies of all loops. one is how many
// of what they count make one of the histogram's unit.
func newHistogram(bounds []int64, one float64, tallies []*tally) Histogram {
	h := Histogram{Bounds: make([]float64, len(bounds)), Counts: make([]uint64, len(bounds)+1)}
	for i, b := range bounds {
		h.Bounds[i] = float64(b) / one
	}
	for _, t := range tallies {
		for i := range h.Counts {
			h.Counts[i] += uint64(t.buckets[i].Load())
		}
		h.Sum += float64(t.sum.Load()) / one
	}
	return h
}

// LookupDurations returns how long, in seconds, the lookups took that the server
// has answered: from the turn of the event loop that brought the request's first
// byte until the reply was handed to the kernel.
func (s *Server) LookupDurations() Histogram {
	return newHistogram(durationBounds[:], float64(time.Second), s.tallies(func(m *meter) *tally { return &m.durations }))
}

// LookupHashes returns how many hashes those lookups had.
func (s *Server) LookupHashes() Histogram {
	return newHistogram(hashBounds[:], 1, s.tallies(func(m *meter) *tally { return &m.hashes }))
}

func (s *Server) tallies(of func(m *meter) *tally) []*tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []*tally{of(&s.noLoop)}
	for _, m := range s.meters {
		all = append(all, of(m))
	}
	return all
}

// meterOf returns the meter of a loop. Server.mu is held.
func (s *Server) meterOf(loop gnet.EventLoop) *meter {
	m := s.meters[loop]
	if m == nil {
		m = new(meter)
		s.meters[loop] = m
	}
	return m
}
