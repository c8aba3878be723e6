package load

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Every request of an open loop falls due once, at one connection, in even steps.
func TestDue(t *testing.T) {
	for _, rate := range []float64{0.3, 7, 1000, 123_456.7, 1e8} {
		for _, workers := range []int{1, 3} {
			s := stage{start: 12_345, end: math.MaxInt64, period: 1e9 / rate, workers: workers}
			total := int64(0)
			for number := range workers {
				w := &worker{number: number, stage: s, conns: []*conn{{}, {}, {}, {}, {}}}
				assert.Equal(t, s.start+int64(float64(number)*s.period), w.dueAt(0))
				for _, after := range []float64{0, 0.5, 1, 17.3, 99_999} {
					now := s.start + int64(after*s.period)
					n := w.dueBy(now)
					assert.Greater(t, w.dueAt(n), now)
					assert.True(t, n == 0 || w.dueAt(n-1) <= now)
					w.arrivals = n
					sum := int64(0)
					for i := range w.conns {
						sum += w.backlog(i)
					}
					assert.Equal(t, n, sum)
				}
				total += w.dueBy(s.start + int64(3000*s.period))
			}
			assert.InDelta(t, 3001, total, 1)
		}
	}
}

// What fell due while measuring and was never sent has waited until the end. What fell due
// in the warm-up was not to be measured.
func TestUnsent(t *testing.T) {
	const ms = int64(1e6)
	for name, c := range map[string]struct{ taken, arrivals, want int64 }{
		"some of the warm-up":    {taken: 50, arrivals: 1500, want: 500},
		"all of the warm-up":     {taken: 200, arrivals: 1500, want: 500},
		"some of the measuring":  {taken: 220, arrivals: 1500, want: 400},
		"all":                    {taken: 300, arrivals: 1500, want: 0},
		"stopped in the warm-up": {taken: 50, arrivals: 700, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := &worker{
				tally: newTally(1000 * ms),
				stage: stage{begin: 1000 * ms, end: 1500 * ms, period: float64(ms), workers: 1},
				now:   1400 * ms, arrivals: c.arrivals,
			}
			for range 5 {
				w.conns = append(w.conns, &conn{taken: c.taken, budget: -1})
			}
			w.finish()
			full := w.tally
			assert.Equal(t, []int64{c.want, c.want}, []int64{full.unsent, full.latency.TotalCount()})
			if c.want > 0 { // the last fell due when the last arrival of the five connections did
				last := 1400*ms - (c.arrivals-1)*ms
				assert.Equal(t, max(last, 1), full.minWait)
				assert.InDelta(t, full.minWait, full.latency.Min(), 1e3)
			}
		})
	}
}

// Requests are those answered while measuring, and latencies those of requests that were
// sent, or fell due, then: also of those whose answers come after the end.
func TestWhatCounts(t *testing.T) {
	const count = math.MaxInt64 // the end where requests are counted out
	for name, c := range map[string]struct {
		period              float64
		start, now, end     int64
		requests, latencies int64
	}{
		"open":                    {period: 10, start: 1500, now: 2000, end: 2000, requests: 1, latencies: 1},
		"open, late":              {period: 10, start: 1500, now: 9000, end: 2000, latencies: 1},
		"open, of the warm-up":    {period: 10, start: 900, now: 1500, end: 2000, requests: 1},
		"closed":                  {start: 1500, now: 2000, end: 2000, requests: 1, latencies: 1},
		"closed, late":            {start: 1500, now: 9000, end: 2000, latencies: 1},
		"closed, in the warm-up":  {start: 800, now: 999, end: 2000},
		"closed, of the warm-up":  {start: 900, now: 1000, end: 2000, requests: 1},
		"counted":                 {start: 1500, now: 9000, end: count, requests: 1, latencies: 1},
		"counted, of the warm-up": {start: 900, now: 1500, end: count},
	} {
		t.Run(name, func(t *testing.T) {
			w := &worker{stage: stage{begin: 1000, end: c.end, period: c.period}, now: c.now, tally: newTally(1000)}
			w.record(&conn{}, checkedReply{slot: &slot{start: c.start, counts: c.start >= 1000}})
			assert.Equal(t, c.requests, w.tally.requests)
			assert.Equal(t, c.latencies, w.tally.latency.TotalCount())
			if c.latencies > 0 {
				assert.InDelta(t, c.now-c.start, w.tally.latency.Max(), 10)
			}
		})
	}
}

// Where requests are counted out, those that a run which is cut short could not send
// count up to that number.
func TestUnsentOfCount(t *testing.T) {
	const ms = int64(1e6)
	for budget, want := range map[int64]int64{0: 0, 3: 3, 1000: 80} {
		w := &worker{
			tally: newTally(0),
			stage: stage{end: math.MaxInt64, period: float64(ms), workers: 1},
			now:   100 * ms, arrivals: 100, conns: []*conn{{taken: 20, budget: budget}},
		}
		w.finish()
		assert.Equal(t, want, w.tally.unsent)
	}
}
