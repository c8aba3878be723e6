package measure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Percentiles are those of all requests, also the median.
func TestTimes(t *testing.T) {
	got := Rounds{{1, 2, 3}, {5}, {2, 9}}.Times()
	assert.Equal(t, Times{P50: 2, Rounds: Spread{Median: 2, Min: 2, Max: 5}, P99: 9, Max: 9, Requests: 6}, got)
	var rounds Rounds
	times := make([]time.Duration, 200)
	for i := range times {
		times[i] = time.Duration(200-i) * time.Microsecond
	}
	rounds.AddRound(times)
	got = rounds.Times()
	assert.Equal(t, Spread{Median: 100, Min: 100, Max: 100}, got.Rounds)
	assert.InDelta(t, 198, got.P99, 0)
}
