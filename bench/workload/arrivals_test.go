package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
