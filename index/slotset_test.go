package index

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSlotSet compares a slotSet with one bit after the other.
func TestSlotSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s slotSet
	var want [segmentSlots]bool
	check := func(i int) {
		first, present := i, i
		for ; first < segmentSlots && want[first]; first++ {
		}
		for ; present < segmentSlots && !want[present]; present++ {
		}
		require.Equal(t, first, s.firstAbsent(i))
		require.Equal(t, present, s.firstPresent(i))
	}
	checkRuns := func(from, to int) {
		at := from
		for first, n := range s.runs(from, to) {
			require.Positive(t, n)
			require.NotContains(t, want[at:first], true)
			require.NotContains(t, want[first:first+n], false)
			at = first + n
		}
		require.LessOrEqual(t, at, to)
		require.NotContains(t, want[at:to], true)
	}
	for range 2000 {
		i := rng.IntN(segmentSlots)
		n := 1 + rng.IntN(min(segmentSlots-i, 1<<rng.IntN(segmentBits+1)))
		value := rng.IntN(4) > 0
		s.setRange(i, n, value)
		for k := range n {
			want[i+k] = value
		}
		check(i)
		check(max(i-1, 0))
		check(min(i+n, segmentSlots-1))
		check(rng.IntN(segmentSlots))
		checkRuns(max(i-64, 0), min(i+n+64, segmentSlots))
	}
	s.setRange(0, segmentSlots, true)
	require.Equal(t, segmentSlots, s.firstAbsent(0))
	require.Equal(t, segmentSlots, s.firstAbsent(segmentSlots))
	s = slotSet{}
	require.Equal(t, segmentSlots, s.firstPresent(0))
	require.Equal(t, segmentSlots, s.firstPresent(segmentSlots))
}
