package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"
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
	rings                // rings around points that other curves have, without line and label
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

// add adds a curve. If it is to be joined with one of that name, that one gets the points at
// values that it has not, and all in their order.
func (p *panel) add(c curve, join bool) {
	i := slices.IndexFunc(p.curves, func(known curve) bool { return join && known.name == c.name })
	if i < 0 {
		p.curves = append(p.curves, c)
		return
	}
	known := &p.curves[i]
	for _, at := range c.points {
		if !slices.ContainsFunc(known.points, func(k point) bool { return k.x == at.x }) {
			known.points = append(known.points, at)
		}
	}
	slices.SortFunc(known.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
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
