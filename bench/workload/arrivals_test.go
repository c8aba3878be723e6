package workload

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEvenArrivals(t *testing.T) {
	a := EvenArrivals(3) // a rate whose interval is no whole number of nanoseconds
	assert.Zero(t, a.At(0))
	assert.Equal(t, time.Second, a.At(3))
	for moment, want := range map[time.Duration]int64{
		-1: 0, 0: 1, 1: 1, time.Second/3 + 1: 2, time.Second - 1: 3, time.Second: 4, time.Hour: 3*3600 + 1,
	} {
		assert.Equal(t, want, a.By(moment), moment)
	}
}

func TestPoissonArrivals(t *testing.T) {
	const rate, n = 1000, 100_000
	a := PoissonArrivals(rate, 7, 0)
	assert.Equal(t, a.At(n-1), PoissonArrivals(rate, 7, 0).At(n-1), "the seed decides")
	assert.NotEqual(t, a.At(0), PoissonArrivals(rate, 7, 1).At(0))
	assert.NotEqual(t, a.At(0), PoissonArrivals(rate, 8, 0).At(0))
	var sum, squares float64
	last := time.Duration(0)
	for i := range int64(n) {
		at := a.At(i)
		require.GreaterOrEqual(t, at, last)
		gap := (at - last).Seconds() * rate
		sum, squares, last = sum+gap, squares+gap*gap, at
	}
	mean := sum / n
	assert.InDelta(t, 1, mean, 0.02)
	assert.InDelta(t, 1, math.Sqrt(squares/n-mean*mean), 0.03, "exponential: as wide as its mean")

	fresh := PoissonArrivals(rate, 7, 0)
	for _, i := range []int64{0, 1, 500, 10} {
		assert.Equal(t, i+1, fresh.By(a.At(i)), "%d", i)
		assert.Equal(t, i, fresh.By(a.At(i)-1), "%d", i)
	}
	assert.Zero(t, fresh.By(-1))
}
