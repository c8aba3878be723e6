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
	points, spreads := p.places(c.points)
	line, scatter, err := plotter.NewLinePoints(points)
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
	if spreads == nil {
		return nil
	}
	bars, err := plotter.NewYErrorBars(struct {
		plotter.XYs
		plotter.YErrors
	}{points, spreads})
	if err != nil {
		return err
	}
	bars.LineStyle = draw.LineStyle{Color: line.Color, Width: lineWidth / 2}
	bars.CapWidth = 2 * markerSize
	out.Add(bars)
	return nil
}

// places returns where the points stand and how far their spreads reach, nil if no
// point has one.
func (p panel) places(points []point) (plotter.XYs, plotter.YErrors) {
	at, spreads, any := make(plotter.XYs, len(points)), make(plotter.YErrors, len(points)), false
	for i, from := range points {
		at[i] = plotter.XY{X: p.x.scale.place(from.x), Y: p.y.scale.place(from.y)}
		if from.high == 0 {
			continue
		}
		any = true
		spreads[i].Low = at[i].Y - p.y.scale.place(from.low)
		spreads[i].High = p.y.scale.place(from.high) - at[i].Y
	}
	if !any {
		return at, nil
	}
	return at, spreads
}

// diamond is a filled square on its corner.
type diamond struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (diamond) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := 1.25 * style.Radius
	c.FillPolygon(style.Color, []vg.Point{{X: at.X, Y: at.Y + r}, {X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y - r}, {X: at.X - r, Y: at.Y}})
}
