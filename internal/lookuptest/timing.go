package lookuptest

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TimedCall is a call that CompareTimes measures.
type TimedCall struct {
	Name string
	Call func()
}

// CompareTimes makes all calls in each of b.N rounds, in random order, and logs the quartiles of each
// and how its times differ from those of the first: the Mann-Whitney z and its two-sided
// probability. It asserts nothing. For a result pass -benchtime=20000x or more.
func CompareTimes(b *testing.B, calls []TimedCall) {
	rng := rand.New(rand.NewPCG(1, 2))
	times := make([][]float64, len(calls))
	for b.Loop() {
		for _, i := range rng.Perm(len(calls)) {
			begun := time.Now()
			calls[i].Call()
			times[i] = append(times[i], float64(time.Since(begun)))
		}
	}
	for i, c := range calls {
		sorted := slices.Sorted(slices.Values(times[i]))
		n := len(sorted)
		z := mannWhitney(times[0], times[i])
		b.Logf("%-40s %d samples, quartiles %6.0f %6.0f %6.0f ns; against the first: z %+.2f, p %.3f",
			c.Name, n, sorted[n/4], sorted[n/2], sorted[n*3/4], z, math.Erfc(math.Abs(z)/math.Sqrt2))
	}
}

// mannWhitney returns the normal deviate of the Mann-Whitney test: positive if the values of y are
// larger. Equal values share their mean rank. The variance is that without ties, so the result is
// rather too small.
func mannWhitney(x, y []float64) float64 {
	type value struct {
		v float64
		y bool
	}
	var all []value
	for _, v := range x {
		all = append(all, value{v: v})
	}
	for _, v := range y {
		all = append(all, value{v: v, y: true})
	}
	slices.SortFunc(all, func(a, b value) int { return cmp.Compare(a.v, b.v) })
	sum := 0.0 // of the ranks of y, from 1
	for i := 0; i < len(all); {
		end := i
		ys := 0.0
		for ; end < len(all) && all[end].v == all[i].v; end++ {
			if all[end].y {
				ys++
			}
		}
		sum += ys * float64(i+1+end) / 2
		i = end
	}
	n, m := float64(len(x)), float64(len(y))
	return (sum - m*(m+1)/2 - n*m/2) / math.Sqrt(n*m*(n+m+1)/12)
}
