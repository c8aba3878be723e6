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
