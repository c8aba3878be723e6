package picture

import (
	"bytes"
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes in points, a 72nd of an inch.
const (
	width       = vg.Length(540)
	panelHeight = vg.Length(250) // with its axes
	shortPanel  = vg.Length(175) // where there are several
	margin      = vg.Length(12)
	titleSize   = vg.Length(15)
	textSize    = vg.Length(11)
	pngDPI      = 192 // of the PNG: sharp on a dense display at half its size
)

// handler lays text out.
var handler = plot.DefaultTextHandler

// render draws the figure in each theme and format, PNG in so many dots an inch.
func (f figure) render(dpi int) ([]File, error) {
	var files []File
	for _, t := range []theme{light, dark} {
		height := f.height(t)
		for _, format := range []struct {
			suffix string
			canvas vg.CanvasWriterTo
		}{
			{".svg", vgsvg.New(width, height)},
			{".png", vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(t.background))}},
		} {
			if err := f.draw(draw.NewCanvas(format.canvas, width, height), t); err != nil {
				return nil, err
			}
			content, err := written(format.canvas)
			if err != nil {
				return nil, fmt.Errorf("picture: cannot encode %s: %w", format.suffix, err)
			}
			files = append(files, File{t.suffix + format.suffix, content})
		}
	}
	return files, nil
}

// written returns what the canvas writes. In SVG it names more fonts of the same
// widths, because few machines have the first.
func written(canvas io.WriterTo) ([]byte, error) {
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arimo,Arial,Helvetica,sans-serif;")), nil
}

// height returns the height of the whole.
func (f figure) height(t theme) vg.Length {
	of := panelHeight
	if len(f.panels) > 1 {
		of = shortPanel
	}
	return 2*margin + f.header(t).height() + vg.Length(len(f.panels))*of
}

// draw draws the whole on a canvas of the size.
func (f figure) draw(c draw.Canvas, t theme) error {
	c.SetColor(t.background)
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin-4, margin, -margin)
	h := f.header(t)
	h.draw(c)
	c = draw.Crop(c, 0, 0, 0, -h.height())

	plots := make([][]*plot.Plot, len(f.panels))
	styles := f.styles()
	for i, p := range f.panels {
		drawn, err := p.plot(t, styles[i])
		if err != nil {
			return err
		}
		if i < len(f.panels)-1 {
			drawn.X.Label.Text = "" // the lowest says it
		}
		plots[i] = []*plot.Plot{drawn}
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadY: 8}
	for i, row := range plot.Align(plots, tiles, c) {
		plots[i][0].Draw(row[0])
	}
	return nil
}

// plot returns the panel as the library has it.
func (p panel) plot(t theme, styles []int) (*plot.Plot, error) {
	out := plot.New()
	out.BackgroundColor = color.Transparent
	low, high := p.extent()
	t.dress(&out.X, p.x)
	t.dress(&out.Y, p.y)
	out.Add(t.gridLines())
	for i, c := range p.curves {
		if err := p.addCurve(out, t, c, styles[i]); err != nil {
			return nil, fmt.Errorf("picture: cannot draw %s: %w", c.name, err)
		}
	}
	p.x.frame(&out.X, low.x, high.x)
	p.y.frame(&out.Y, low.y, high.y)
	return out, nil
}

// frame sets the ends of an axis for values from low to high.
func (a axis) frame(to *plot.Axis, low, high float64) {
	from, until := a.scale.bounds(low, high)
	to.Min, to.Max = a.scale.place(from), a.scale.place(until)
}

// dress sets the style of an axis.
func (t theme) dress(to *plot.Axis, a axis) {
	to.Label.Text = a.label
	to.Label.Padding = 4
	label := t.write(textSize, t.ink)
	to.Label.TextStyle.Color, to.Label.TextStyle.Font = label.Color, label.Font
	tick := t.write(textSize-1, t.ink)
	to.Tick.Label.Color, to.Tick.Label.Font = tick.Color, tick.Font
	to.Color, to.Tick.Color = t.faint, t.faint
	to.Width, to.Tick.Width = gridWidth, gridWidth
	to.Tick.Length = 4
	to.Padding = 0
	to.Tick.Marker = a.scale
}
