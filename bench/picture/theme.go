package picture

import (
	"image/color"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// theme is the colours of a figure.
type theme struct {
	suffix     string // of its files
	background color.Color
	ink        color.Color // text and axes
	faint      color.Color // what is less than ink: the line below the title, bounds
	grid       color.Color
	palette    []color.Color
}

// The palette of Okabe and Ito, which people with any kind of colour vision can
// tell apart, in the order in which its colours stand out from the page.
var (
	orange     = rgb(0xE69F00)
	skyBlue    = rgb(0x56B4E9)
	green      = rgb(0x009E73)
	yellow     = rgb(0xF0E442)
	blue       = rgb(0x0072B2)
	vermillion = rgb(0xD55E00)
	purple     = rgb(0xCC79A7)

	light = theme{
		background: color.White, ink: rgb(0x1F2328), faint: rgb(0x59636E), grid: rgb(0xDDE1E6),
		palette: []color.Color{blue, vermillion, green, purple, orange, skyBlue, rgb(0)},
	}
	dark = theme{
		suffix:     "-dark",
		background: rgb(0x0D1117), ink: rgb(0xE6EDF3), faint: rgb(0x9198A1), grid: rgb(0x2A313A),
		palette: []color.Color{skyBlue, orange, green, purple, yellow, vermillion, color.White},
	}
)

func rgb(hex uint32) color.Color {
	return color.RGBA{R: byte(hex >> 16), G: byte(hex >> 8), B: byte(hex), A: 0xFF}
}

// Markers and dashes are as many as go with the seven colours to 56 curves that
// differ.
var (
	markers = []draw.GlyphDrawer{
		draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, diamond{},
		draw.RingGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{},
	}
	dashes = [][]vg.Length{nil, {6, 2}, {2, 2}, {8, 2, 2, 2}, {4, 4}}
)

const (
	lineWidth  = vg.Length(1.6)
	gridWidth  = vg.Length(0.6)
	markerSize = vg.Length(2.8) // radius
)

// line returns the style of the i-th curve's line.
func (t theme) line(i int, r role) draw.LineStyle {
	if r == bound {
		return draw.LineStyle{Color: t.faint, Width: lineWidth, Dashes: []vg.Length{3, 3}}
	}
	return draw.LineStyle{Color: t.palette[i%len(t.palette)], Width: lineWidth, Dashes: dashes[i%len(dashes)]}
}

// marker returns the style of the i-th curve's points.
func (t theme) marker(i int, r role) draw.GlyphStyle {
	if r == rings {
		return draw.GlyphStyle{Color: t.ink, Radius: 2 * markerSize, Shape: draw.RingGlyph{}}
	}
	return draw.GlyphStyle{Color: t.palette[i%len(t.palette)], Radius: markerSize, Shape: markers[i%len(markers)]}
}

// write returns the style of text of a size in points, aligned at its top left.
func (t theme) write(size vg.Length, colour color.Color) text.Style {
	return text.Style{
		Color: colour, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size),
		XAlign: text.XLeft, YAlign: text.YTop, Handler: handler,
	}
}
