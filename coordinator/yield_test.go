package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// After a yield that took long nobody yields for a while.
func TestYieldStopsWhereItIsLong(t *testing.T) {
	var now, takes time.Duration
	made := 0
	y := yielder{yieldCPU: func() { now += takes; made++ }, now: func() time.Duration { return now }}
	yield := func(times int) int {
		made = 0
		for range times {
			now += time.Microsecond
			y.yield()
		}
		return made
	}
	takes = longYield
	require.Equal(t, 100, yield(100))
	takes = longYield + 1
	require.Equal(t, 1, yield(100))
	now += yieldPause
	takes = 0
	require.Equal(t, 100, yield(100))
}
