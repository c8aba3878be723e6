package picture

import "math"

// figure is what a kind makes of its sources.
type figure struct {
	title  string
	about  string // what was measured, below the title; may be empty
	panels []panel
}

// panel is a set of curves over two axes. All panels of a figure have the same
// horizontal one.
type panel struct {
	x, y   axis
	curves []curve
}

// axis is one direction of a panel.
type axis struct {
	label string // with the unit
	scale scale
}

// curve is a sequence of points.
type curve struct {
	name   string // in the legend
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
	rings                // rings around points that other curves have, without a line
)

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

// styles returns the number of the style of each curve, panel by panel. Only
// measured curves use styles up.
func (f figure) styles() [][]int {
	styles, next := make([][]int, len(f.panels)), 0
	for i, p := range f.panels {
		for _, c := range p.curves {
			styles[i] = append(styles[i], next)
			if c.role == measured {
				next++
			}
		}
	}
	return styles
}
