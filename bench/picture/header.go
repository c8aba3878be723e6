package picture

import (
	"strings"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	thumbWidth = vg.Length(26) // of the piece of curve in the legend
	thumbGap   = vg.Length(5)
	entryGap   = vg.Length(16)
	lineHeight = vg.Length(16)
)

// header is what stands above the panels: the title, what was measured, and the
// legend.
type header struct {
	theme  theme
	title  text.Style
	text   text.Style
	name   string
	about  []string // lines
	legend [][]entry
}

// entry is one curve in the legend.
type entry struct {
	name  string
	style int
	role  role
	x     vg.Length // from the left
}

// header lays the figure's header out. A figure of one curve has no legend.
func (f figure) header(t theme) header {
	h := header{theme: t, title: t.write(titleSize, t.ink), text: t.write(textSize-1, t.faint), name: f.title}
	h.about = wrap(f.about, h.text, width-2*margin)
	for i, styles := range f.styles() {
		for j, c := range f.panels[i].curves {
			h.add(entry{name: c.name, style: styles[j], role: c.role})
		}
	}
	if len(h.legend) == 1 && len(h.legend[0]) == 1 {
		h.legend = nil
	}
	return h
}

// add puts an entry into the legend's last row, or into a new one. What is longer
// than a row is cut.
func (h *header) add(e entry) {
	room := width - 2*margin
	e.name = fit(e.name, h.text, room-thumbWidth-thumbGap)
	if n := len(h.legend); n > 0 {
		row := h.legend[n-1]
		last := row[len(row)-1]
		e.x = last.x + thumbWidth + thumbGap + h.text.Width(last.name) + entryGap
		if e.x+thumbWidth+thumbGap+h.text.Width(e.name) <= room {
			h.legend[n-1] = append(row, e)
			return
		}
	}
	e.x = 0
	h.legend = append(h.legend, []entry{e})
}

// height returns what the header takes, with a gap below.
func (h header) height() vg.Length {
	return titleSize + 8 + vg.Length(len(h.about)+len(h.legend))*lineHeight + 8
}

// draw draws the header at the top of a canvas.
func (h header) draw(c draw.Canvas) {
	at := vg.Point{X: c.Min.X, Y: c.Max.Y}
	c.FillText(h.title, at, h.name)
	at.Y -= titleSize + 8
	for _, line := range h.about {
		c.FillText(h.text, at, line)
		at.Y -= lineHeight
	}
	ink := h.theme.write(textSize-1, h.theme.ink)
	for _, row := range h.legend {
		for _, e := range row {
			from := vg.Point{X: at.X + e.x, Y: at.Y - lineHeight/2 + 2}
			h.thumb(c, e, from)
			c.FillText(ink, vg.Point{X: from.X + thumbWidth + thumbGap, Y: at.Y}, e.name)
		}
		at.Y -= lineHeight
	}
}

// thumb draws a piece of the curve.
func (h header) thumb(c draw.Canvas, e entry, from vg.Point) {
	if e.role != rings {
		c.StrokeLine2(h.theme.line(e.style, e.role), from.X, from.Y, from.X+thumbWidth, from.Y)
	}
	if e.role != bound {
		c.DrawGlyphNoClip(h.theme.marker(e.style, e.role), vg.Point{X: from.X + thumbWidth/2, Y: from.Y})
	}
}

// fit cuts text to a width.
func fit(text string, style text.Style, room vg.Length) string {
	for cut := []rune(text); style.Width(text) > room && len(cut) > 0; {
		cut = cut[:len(cut)-1]
		text = string(cut) + "…"
	}
	return text
}

// wrap breaks text at spaces into lines of at most a width. A longer word is cut.
func wrap(words string, style text.Style, room vg.Length) []string {
	var lines []string
	for _, word := range strings.Fields(words) {
		n := len(lines)
		if n > 0 && style.Width(lines[n-1]+" "+word) <= room {
			lines[n-1] += " " + word
			continue
		}
		lines = append(lines, fit(word, style, room))
	}
	return lines
}
