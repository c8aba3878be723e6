package picture

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// gridLines returns a grid at the labelled ticks.
func (t theme) gridLines() *plotter.Grid {
	style := draw.LineStyle{Color: t.grid, Width: gridWidth}
	return &plotter.Grid{Vertical: style, Horizontal: style}
}

// addCurve adds a curve of the panel in the number-th style to a plot.
func (p panel) addCurve(out *plot.Plot, t theme, c curve, number int) error {
	line, scatter, err := plotter.NewLinePoints(p.places(c.points))
	if err != nil {
		return err
	}
	line.LineStyle, scatter.GlyphStyle = t.line(number, c.role), t.marker(number, c.role)
	if c.role != rings {
		out.Add(line)
	}
	if c.role != bound {
		out.Add(scatter)
	}
	spreads := p.spreads(c.points)
	if spreads.Len() == 0 {
		return nil
	}
	bars, err := plotter.NewYErrorBars(spreads)
	if err != nil {
		return err
	}
	bars.LineStyle = draw.LineStyle{Color: line.Color, Width: lineWidth / 2}
	bars.CapWidth = 2 * markerSize
	out.Add(bars)
	return nil
}

// places returns where the points stand.
func (p panel) places(points []point) plotter.XYs {
	at := make(plotter.XYs, len(points))
	for i, from := range points {
		at[i] = plotter.XY{X: p.x.scale.place(from.x), Y: p.y.scale.place(from.y)}
	}
	return at
}

// spreads are places and how far the measured values reach from there.
type spreads struct {
	plotter.XYs
	plotter.YErrors
}

// spreads returns the spreads of those points that have one.
func (p panel) spreads(points []point) spreads {
	var s spreads
	for i, at := range p.places(points) {
		from := points[i]
		if from.high == 0 {
			continue
		}
		s.XYs = append(s.XYs, at)
		s.YErrors = append(s.YErrors, struct{ Low, High float64 }{at.Y - p.y.scale.place(from.low), p.y.scale.place(from.high) - at.Y})
	}
	return s
}

// diamond is a filled square on its corner.
type diamond struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (diamond) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := 1.25 * style.Radius
	c.FillPolygon(style.Color, []vg.Point{{X: at.X, Y: at.Y + r}, {X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y - r}, {X: at.X - r, Y: at.Y}})
}
