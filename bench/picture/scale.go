package picture

import (
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// scale says how values are spread over an axis. The plotting library sees where
// values stand (see place) on an axis that is linear.
type scale int

const (
	linear     scale = iota // from 0
	log                     // by powers of ten
	percentile              // of shares below 1, by the share that is above
	hundred                 // from 0 to 100
)

// within is what rounding may add to a figure; ticks at the ends count.
const within = 1e-9

// place returns where a value stands. On an axis of percentiles 0.9 stands at 1,
// 0.99 at 2.
func (s scale) place(v float64) float64 {
	switch s {
	case log:
		return math.Log10(v)
	case percentile:
		return -math.Log10(1 - v)
	}
	return v
}

// bounds returns the values at the ends of an axis for those from low to high.
func (s scale) bounds(low, high float64) (from, to float64) {
	switch s {
	case log:
		from, to = roundDown(low), roundUp(high)
		if from == to {
			to = 2 * from
		}
		return from, to
	case percentile:
		return 0.5, max(high, 0.99)
	case hundred:
		return 0, 100
	}
	if high <= 0 {
		return 0, 1
	}
	return 0, high * 1.03 // the largest stands clear of the edge
}

// unitOf returns the power of ten that is not above v.
func unitOf(v float64) float64 { return math.Pow10(int(math.Floor(math.Log10(v) + within))) }

// roundDown and roundUp return the next number of one digit other than 0.
func roundDown(v float64) float64 { return math.Floor(v/unitOf(v)+within) * unitOf(v) }
func roundUp(v float64) float64   { return math.Ceil(v/unitOf(v)-within) * unitOf(v) }

// Ticks implements plot.Ticker. It takes and returns places.
func (s scale) Ticks(from, to float64) []plot.Tick {
	switch s {
	case log:
		return logTicks(from, to)
	case percentile:
		return percentileTicks(to)
	case hundred:
		return evenTicks(100, 20)
	}
	return evenTicks(to, stepFor(to))
}

// logTicks labels each power of ten; where those are few also twice and five times
// them; and on a short axis all.
func logTicks(from, to float64) []plot.Tick {
	few, all := to-from < 3, to-from < 0.7
	var ticks []plot.Tick
	for power := math.Floor(from); power <= to; power++ {
		for step := 1.0; step < 10; step++ {
			tick := plot.Tick{Value: power + math.Log10(step)}
			if tick.Value < from-within || tick.Value > to+within {
				continue
			}
			if step == 1 || all || few && (step == 2 || step == 5) {
				tick.Label = short(step * math.Pow10(int(power)))
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// percentileTicks labels 50, and one more nine at a time.
func percentileTicks(to float64) []plot.Tick {
	ticks := []plot.Tick{{Value: percentile.place(0.5), Label: "50"}}
	for n := 1; float64(n) <= to+within; n++ {
		digits := max(n-2, 0)
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: strconv.FormatFloat(100-math.Pow10(2-n), 'f', digits, 64)})
	}
	return ticks
}

// stepFor returns a step of 1, 2 or 5 times a power of ten of which at most eight
// reach a value.
func stepFor(to float64) float64 {
	unit := unitOf(to / 8)
	for _, step := range []float64{1, 2, 5} {
		if to/(step*unit) <= 8 {
			return step * unit
		}
	}
	return 10 * unit
}

func evenTicks(to, step float64) []plot.Tick {
	var ticks []plot.Tick
	for i := 0.0; i*step <= to*(1+within); i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: short(i * step)})
	}
	return ticks
}

// short formats a number for an axis: 0.5, 20, 5k, 2M.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= unit.size*(1-within) {
			return fmt.Sprintf("%.4g%s", v/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.4g", v)
}
