package picture

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// scale says how values are spread over an axis: evenly by their place.
type scale int

const (
	log        scale = iota // by powers of ten
	percentile              // of shares below 1, by the share that is above
	hundred                 // from 0 to 100
	seconds                 // from 0, with ticks in seconds, minutes or hours
)

// within is what rounding may add to a figure; ticks at the ends count.
const within = 1e-9

// tick is a mark on an axis, at a place. Those without a label are small.
type tick struct {
	at    float64
	label string
	minor bool // its label goes first where there is little room
}

// thinned returns the ticks without those labels that are nearer than gap to another one that
// is kept: before others those that are not minor.
func thinned(ticks []tick, at func(place float64) float64, gap float64) []tick {
	kept := make([]tick, len(ticks))
	for i, t := range ticks {
		kept[i] = tick{at: t.at}
	}
	for _, minor := range []bool{false, true} {
		for i, t := range ticks {
			near := func(k tick) bool { return k.label != "" && math.Abs(at(k.at)-at(t.at)) < gap }
			if t.minor == minor && !slices.ContainsFunc(kept, near) {
				kept[i] = t
			}
		}
	}
	return kept
}

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

// ticks returns the marks from a place to another one.
func (s scale) ticks(from, to float64) []tick {
	switch s {
	case log:
		return logTicks(from, to)
	case percentile:
		ticks := []tick{{at: percentile.place(0.5), label: "50"}}
		for nines := 1; float64(nines) <= to+within; nines++ {
			ticks = append(ticks, tick{at: float64(nines), label: strconv.FormatFloat(100-math.Pow10(2-nines), 'f', max(nines-2, 0), 64)})
		}
		return ticks
	case hundred:
		return evenTicks(100, 20, 1, "")
	}
	unit, name := 1.0, " s"
	switch {
	case to > 3*3600:
		unit, name = 3600, " h"
	case to > 600:
		unit, name = 60, " min"
	}
	return evenTicks(to/unit, stepFor(to/unit), unit, name)
}

// logTicks labels each power of ten; where those are few also twice and five times
// them; and on a short axis all.
func logTicks(from, to float64) []tick {
	few, all := to-from < 3, to-from < 0.7
	var ticks []tick
	for power := math.Floor(from); power <= to; power++ {
		for step := 1.0; step < 10; step++ {
			t := tick{at: power + math.Log10(step)}
			if t.at < from-within || t.at > to+within {
				continue
			}
			if step == 1 || all || few && (step == 2 || step == 5) {
				t.label, t.minor = short(step*math.Pow10(int(power))), step != 1
			}
			ticks = append(ticks, t)
		}
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

// evenTicks labels the multiples of step up to a number of units, which have a name.
func evenTicks(to, step, unit float64, name string) []tick {
	var ticks []tick
	for i := 0.0; i*step <= to*(1+within); i++ {
		ticks = append(ticks, tick{at: i * step * unit, label: short(i*step) + name})
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
