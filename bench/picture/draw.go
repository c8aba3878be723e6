package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Sizes in pixels. A page of GitHub shows 720 of them unscaled.
const (
	width      = 720.0
	margin     = 16.0
	titleSize  = 18.0
	textSize   = 13.0
	lineHeight = 16.0
	plotHeight = 320.0 // of a figure's only panel
	lowHeight  = 150.0 // where there are several
	maxLabel   = 180.0 // longest line of a label
	labelGap   = 34.0  // from the plot to a label's text, with its marker
	labelSpot  = 24.0  // from the plot to that marker
	rowHeight  = 22.0  // of what an axis has: its ticks, its name
	maxMarkers = 24    // of a curve of more points, not all are marked
)

// area is where a panel's data stands.
type area struct {
	panel
	left, right, top, bottom float64
	from, to                 point // places at the corners
	labels                   []label
}

// draw returns the figure as SVG.
func (f figure) draw(t theme) []byte {
	about := wrap(f.about, textSize, width-2*margin)
	top := margin + titleSize + 6 + float64(len(about))*lineHeight + 8
	areas := f.layout(t, top)
	height := areas[len(areas)-1].bottom + 2*rowHeight + margin/2

	var s svg
	s.open("svg", "xmlns", "http://www.w3.org/2000/svg", "width", width, "height", height, "viewBox", fmt.Sprintf("0 0 %v %v", width, rounded(height)),
		"role", "img", "aria-labelledby", "title desc", "font-family", "system-ui, sans-serif", "font-size", textSize, "fill", t.ink)
	s.text("title", f.title, "id", "title")
	s.text("desc", f.describe(), "id", "desc")
	s.element("rect", "width", width, "height", height, "fill", t.background)
	s.text("text", f.title, "x", margin, "y", margin+titleSize-3, "font-size", titleSize, "font-weight", "600")
	for i, line := range about {
		s.text("text", line, "x", margin, "y", margin+titleSize+6+float64(i+1)*lineHeight-4, "fill", t.faint)
	}
	styles := t.styles(f.panels)
	for i, a := range areas {
		s.axes(a, t, i == len(areas)-1)
		for j, c := range slices.Backward(a.curves) { // the first one above the others
			s.curve(a, c, styles[i][j])
		}
		for _, l := range a.labels {
			s.label(a, l)
		}
	}
	s.end("svg")
	return s.Bytes()
}

// describe says in a sentence a curve what the figure shows.
func (f figure) describe() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s.", f.about)
	for _, p := range f.panels {
		fmt.Fprintf(&text, " %s over %s:", p.y.label, p.x.label)
		for i, c := range p.curves {
			first, last := c.points[0], c.points[len(c.points)-1]
			if p.x.scale == percentile { // the points have shares
				first.x, last.x = 100*first.x, 100*last.x
			}
			fmt.Fprintf(&text, "%s %s from %.4g at %.6g to %.4g at %.6g", map[bool]string{true: ";"}[i > 0], c.name, first.y, first.x, last.y, last.x)
		}
		text.WriteString(".")
	}
	return strings.TrimPrefix(text.String(), ". ")
}

// layout places the panels below each other, from top on.
func (f figure) layout(t theme, top float64) []area {
	areas := make([]area, len(f.panels))
	left, right := 0.0, 0.0
	styles := t.styles(f.panels)
	for i, p := range f.panels {
		a := &areas[i]
		a.panel = p
		low, high := p.extent()
		a.from.x, a.to.x = p.x.places(low.x, high.x)
		a.from.y, a.to.y = p.y.places(low.y, high.y)
		for _, mark := range p.y.scale.ticks(a.from.y, a.to.y) {
			left = max(left, textWidth(mark.label, textSize))
		}
		for j, c := range p.curves {
			l := label{lines: wrap(c.name, textSize, maxLabel), style: styles[i][j]}
			for _, line := range l.lines {
				right = max(right, textWidth(line, textSize))
			}
			a.labels = append(a.labels, l)
		}
	}
	height := plotHeight
	if len(areas) > 1 {
		height = lowHeight
	}
	for i := range areas {
		a := &areas[i]
		a.left, a.right = margin+left+8, width-margin-right-labelGap
		a.top = top + rowHeight
		a.bottom = a.top + max(height, heightOf(a.labels))
		a.placeLabels()
		top = a.bottom + rowHeight + margin/2
	}
	return areas
}

// places returns where the ends of an axis stand, for values from low to high.
func (a axis) places(low, high float64) (from, to float64) {
	from, to = a.scale.bounds(low, high)
	return a.scale.place(from), a.scale.place(to)
}

// placeLabels moves the labels to the ends of their curves, in the order of these.
func (a *area) placeLabels() {
	for i, c := range a.curves {
		a.labels[i].x, a.labels[i].y = a.at(c.points[len(c.points)-1])
	}
	slices.SortStableFunc(a.labels, func(l, m label) int { return cmp.Compare(l.y, m.y) })
	spread(a.labels, a.top-lineHeight/2, a.bottom+lineHeight/2)
}

// at returns where a point stands.
func (a *area) at(p point) (x, y float64) {
	return a.across(a.x.scale.place(p.x)), a.up(a.y.scale.place(p.y))
}

// across and up return where a place stands, from the left and from the top.
func (a *area) across(place float64) float64 {
	return a.left + (place-a.from.x)/(a.to.x-a.from.x)*(a.right-a.left)
}

func (a *area) up(place float64) float64 {
	return a.bottom - (place-a.from.y)/(a.to.y-a.from.y)*(a.bottom-a.top)
}

// axes draws the grid, the ticks and the names of the axes.
func (s *svg) axes(a area, t theme, lowest bool) {
	s.open("g", "class", "axes", "stroke", t.grid, "fill", "none")
	s.element("rect", "class", "plot", "x", a.left, "y", a.top, "width", a.right-a.left, "height", a.bottom-a.top)
	across, up := a.x.scale.ticks(a.from.x, a.to.x), thinned(a.y.scale.ticks(a.from.y, a.to.y), a.up, lineHeight)
	long := 0.0
	for _, mark := range across {
		long = max(long, textWidth(mark.label, textSize))
	}
	across = thinned(across, a.across, long+2)
	for _, mark := range across {
		from := a.top
		if mark.label == "" {
			from = a.bottom - 4
		}
		s.element("path", "d", fmt.Sprintf("M%v %vV%v", rounded(a.across(mark.at)), rounded(a.bottom), rounded(from)))
	}
	for _, mark := range up {
		to := a.right
		if mark.label == "" {
			to = a.left + 4
		}
		s.element("path", "d", fmt.Sprintf("M%v %vH%v", rounded(a.left), rounded(a.up(mark.at)), rounded(to)))
	}
	s.end("g")
	for _, mark := range across {
		if mark.label != "" {
			s.text("text", mark.label, "x", a.across(mark.at), "y", a.bottom+lineHeight+3, "text-anchor", "middle")
		}
	}
	for _, mark := range up {
		if mark.label != "" {
			s.text("text", mark.label, "x", a.left-8, "y", a.up(mark.at)+4.5, "text-anchor", "end")
		}
	}
	s.text("text", a.y.label, "x", margin, "y", a.top-10, "fill", t.faint)
	if lowest {
		s.text("text", a.x.label, "x", (a.left+a.right)/2, "y", a.bottom+rowHeight+lineHeight, "text-anchor", "middle", "fill", t.faint)
	}
}

// curve draws a curve's bars, line and markers.
func (s *svg) curve(a area, c curve, look style) {
	s.open("g", "class", "curve", "stroke", look.colour, "stroke-width", look.width, "fill", "none", "stroke-linejoin", "round")
	var line strings.Builder
	every := 1 + (len(c.points)-1)/maxMarkers
	for i, p := range c.points {
		x, y := a.at(p)
		fmt.Fprintf(&line, "%v,%v ", rounded(x), rounded(y))
		if p.high > 0 {
			low, high := a.up(a.y.scale.place(p.low)), a.up(a.y.scale.place(p.high))
			s.element("path", "d", fmt.Sprintf("M%v %vh6m-3 0V%vm-3 0h6", rounded(x-3), rounded(low), rounded(high)), "stroke-width", 1.0)
		}
		if i%every == 0 || i == len(c.points)-1 {
			s.marker(look, x, y)
		}
	}
	s.element("polyline", "points", strings.TrimSpace(line.String()), "stroke-dasharray", cmp.Or(look.dashes, "none"))
	s.end("g")
}

// marker draws the marker of a style, if it has one.
func (s *svg) marker(look style, x, y float64) {
	if look.marker != "" {
		s.element("path", "d", look.marker, "transform", fmt.Sprintf("translate(%v %v)", rounded(x), rounded(y)), "fill", look.colour, "stroke-width", 1.4)
	}
}

// label draws a curve's label, with a marker, and a line to the curve's end if it is away from that.
func (s *svg) label(a area, l label) {
	spot := a.right + labelSpot
	s.open("g", "class", "label", "fill", l.style.colour)
	if math.Abs(l.at-l.y) > 1 || l.x < a.right-1 {
		s.element("path", "d", fmt.Sprintf("M%v %vL%v %v", rounded(l.x+6), rounded(l.y), rounded(spot-7), rounded(l.at)),
			"stroke", l.style.colour, "stroke-width", 0.8, "stroke-dasharray", "1 2")
	}
	if l.style.marker == "" {
		s.element("path", "d", fmt.Sprintf("M%v %vh14", rounded(spot-8), rounded(l.at)), "stroke", l.style.colour, "stroke-width", 1.6, "stroke-dasharray", l.style.dashes)
	} else {
		s.open("g", "stroke", l.style.colour)
		s.marker(l.style, spot, l.at)
		s.end("g")
	}
	for i, line := range l.lines {
		s.text("text", line, "x", a.right+labelGap, "y", l.at+(float64(i)-float64(len(l.lines)-1)/2)*lineHeight+4.5)
	}
	s.end("g")
}
