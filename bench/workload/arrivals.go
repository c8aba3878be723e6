package workload

import (
	"math"
	"sort"
	"time"
)

// Arrivals are the times at which requests fall due at equal distances, counted from a beginning.
type Arrivals struct{ interval float64 } // nanoseconds between two

// EvenArrivals are arrivals at equal distances, rate in a second. The first is at 0.
func EvenArrivals(rate float64) Arrivals { return Arrivals{float64(time.Second) / rate} }

// At returns when the n-th request falls due, from 0.
func (a Arrivals) At(n int64) time.Duration {
	return time.Duration(math.Ceil(float64(n) * a.interval))
}

// By returns how many requests have fallen due by a moment, inclusive.
func (a Arrivals) By(moment time.Duration) int64 {
	if moment < 0 {
		return 0
	}
	n := int64(float64(moment)/a.interval) + 2 // one more than may be due
	return int64(sort.Search(int(n), func(i int) bool { return a.At(int64(i)) > moment }))
}
