package indexbench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hitline/hitline/bench/measure"
)

// passes are the values of one figure, one of each pass or round.
type passes []float64

// median is the median of the passes.
func (p passes) median() float64 { return measure.Round3(measure.Median(p)) }

// spread is the least and the largest value.
func (p passes) spread() Spread {
	return Spread{measure.Round3(slices.Min(p)), measure.Round3(slices.Max(p))}
}

// Spread is the least and the largest of the values of a figure.
type Spread [2]float64

// over returns a/b, and 0 if b is 0.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return measure.Round3(a / b)
}

// cell formats a figure and, if there is one, its spread.
func cell(v *float64, s *Spread) string {
	switch {
	case v == nil:
		return "none"
	case s == nil:
		return fmt.Sprintf("%.1f", *v)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", *v, s[0], s[1])
}

func suffixed(v *float64, unit string) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.2f%s", *v, unit)
}

// writeTrimmed writes lines without the spaces at their ends.
func writeTrimmed(w io.Writer, text string) error {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}
