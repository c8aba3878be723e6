package workload

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// Arrivals are the times at which requests fall due, counted from a beginning, in order.
// They are drawn as they are asked for and kept, 8 bytes each. Not safe for concurrent use.
type Arrivals struct {
	interval float64    // nanoseconds between two, on average
	random   *rand.Rand // nil: all intervals are equal
	last     float64    // nanoseconds
	due      []time.Duration
}

// EvenArrivals are arrivals at equal distances, rate in a second. The first is at 0.
func EvenArrivals(rate float64) *Arrivals { return &Arrivals{interval: float64(time.Second) / rate} }

// PoissonArrivals are arrivals that know nothing of each other, rate in a second on
// average, as many callers together make them. number makes a process of its own of the
// same seed.
func PoissonArrivals(rate float64, seed Seed, number uint64) *Arrivals {
	return &Arrivals{interval: float64(time.Second) / rate, random: seed.Rand(forArrivals, number)}
}

// At returns when the n-th request falls due, from 0.
func (a *Arrivals) At(n int64) time.Duration {
	if a.random == nil {
		return time.Duration(math.Ceil(float64(n) * a.interval))
	}
	for int64(len(a.due)) <= n {
		a.last += a.random.ExpFloat64() * a.interval
		a.due = append(a.due, time.Duration(a.last))
	}
	return a.due[n]
}

// By returns how many requests have fallen due by a moment, inclusive.
func (a *Arrivals) By(moment time.Duration) int64 {
	if moment < 0 {
		return 0
	}
	n := int64(len(a.due))
	if a.random == nil {
		n = int64(float64(moment)/a.interval) + 2 // one more than may be due
	}
	for a.random != nil && (n == 0 || a.due[n-1] <= moment) {
		a.At(n)
		n++
	}
	return int64(sort.Search(int(n), func(i int) bool { return a.At(int64(i)) > moment }))
}
