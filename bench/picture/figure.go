package picture

import (
	"fmt"
	"math"
)

// figure is what a kind makes of its sources.
type figure struct {
	title  string
	about  string // what was measured, below the title; may be empty
	panels []panel
}

// panel is a set of curves over two axes. All panels of a figure have the same horizontal one.
type panel struct {
	x, y   axis
	curves []curve
}

// axis is one direction of a panel.
type axis struct {
	label string // with the unit, unless the ticks have it
	scale scale
}

// curve is a sequence of points.
type curve struct {
	name   string
	points []point
	role   role
}

// point is a measured value, with the least and the largest of its rounds; both 0
// where they are not known.
type point struct{ x, y, low, high float64 }

// role says how a curve is drawn.
type role int

const (
	measured role = iota // line and markers, in a colour of its own
	bound                // grey, dashed, without markers: what cannot be beaten
)

// check returns an error if a point has no place on the axes.
func (p panel) check(source string, c curve) error {
	for i, at := range c.points {
		for _, v := range []struct {
			axis
			value float64
		}{{p.x, at.x}, {p.y, at.y}} {
			if v.scale == log && v.value <= 0 || math.IsNaN(v.value) || math.IsInf(v.value, 0) {
				return fmt.Errorf("%w: %s: %s is %v in point %d; it must be above 0", ErrInput, source, v.label, v.value, i+1)
			}
		}
	}
	return nil
}

// extent returns the least and the largest values of the panel.
func (p panel) extent() (low, high point) {
	low = point{x: math.Inf(1), y: math.Inf(1)}
	high = point{x: math.Inf(-1), y: math.Inf(-1)}
	for _, c := range p.curves {
		for _, at := range c.points {
			low.x, high.x = min(low.x, at.x), max(high.x, at.x)
			low.y, high.y = min(low.y, at.y), max(high.y, at.y)
			if at.high > 0 {
				low.y, high.y = min(low.y, at.low), max(high.y, at.high)
			}
		}
	}
	return low, high
}
