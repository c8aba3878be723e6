package coordinator

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPeriodic(t *testing.T) {
	sets := []periodic{{}, everyPosition}
	for period := int64(1); period < 9; period++ {
		for tail := range period + 1 {
			sets = append(sets, periodic{0, period, tail}, periodic{1, period, tail}, periodic{5, period, tail})
		}
	}
	const n = 50
	for _, p := range sets {
		in := func(i int64) bool { return p.period > 0 && i >= p.shift && (i-p.shift)%p.period >= p.period-p.tail }
		nearest := func(i, step int64, want bool) int64 { // math.MaxInt64 and -1 if there is none
			for ; i >= 0; i += step {
				switch {
				case i > 2*n:
					return math.MaxInt64
				case in(i) == want:
					return i
				}
			}
			return -1
		}
		numBefore := int64(0)
		for i := range int64(n) {
			require.Equal(t, in(i), p.has(i), "%v %d", p, i)
			require.Equal(t, nearest(i, 1, true), p.next(i), "%v %d", p, i)
			require.Equal(t, nearest(i, 1, false), p.nextGap(i), "%v %d", p, i)
			require.Equal(t, nearest(i, -1, true), p.last(i), "%v %d", p, i)
			require.Equal(t, nearest(i, -1, false), p.lastGap(i), "%v %d", p, i)
			require.Equal(t, numBefore, p.count(i), "%v %d", p, i)
			if in(i) {
				numBefore++
			}
		}
		require.EqualValues(t, -1, p.last(-1))
	}
}
