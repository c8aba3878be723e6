package index

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func (s *slotSet) has(i int) bool { return s.words[i/64]>>(i%64)&1 == 1 }

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
	}
	s.setRange(0, segmentSlots, true)
	require.Equal(t, segmentSlots, s.firstAbsent(0))
	require.Equal(t, segmentSlots, s.firstAbsent(segmentSlots))
	s = slotSet{}
	require.Equal(t, segmentSlots, s.firstPresent(0))
	require.Equal(t, segmentSlots, s.firstPresent(segmentSlots))
}
