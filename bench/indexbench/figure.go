package indexbench

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/hitline/hitline/simd"
)

// Machine says what the figures of a report were measured with.
type Machine struct {
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	GOMAXPROCS int    `json:"gomaxprocs"`
}

func thisMachine() Machine {
	return Machine{simd.Kernel(), runtime.Version(), runtime.GOMAXPROCS(0)}
}

func (m Machine) String() string {
	return fmt.Sprintf("kernel %s, %s, GOMAXPROCS %d", m.Kernel, m.Go, m.GOMAXPROCS)
}

// figure collects the values of one figure, one a pass.
type figure []float64

func (f figure) median() float64 {
	sorted := slices.Sorted(slices.Values(f))
	n := len(sorted)
	return rounded((sorted[(n-1)/2] + sorted[n/2]) / 2)
}

// spread is the least and the largest value.
func (f figure) spread() Spread {
	return Spread{rounded(slices.Min(f)), rounded(slices.Max(f))}
}

// Spread is the least and the largest of the values of a figure.
type Spread [2]float64

// rounded keeps two digits behind the point.
func rounded(v float64) float64 { return math.Round(100*v) / 100 }

// over is a/b, 0 where there is no b.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return rounded(a / b)
}
