// Package chart draws numbers as bars, in SVG that fits light and dark pages.
package chart

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"slices"
	"strconv"
)

// Chart is a title above panels.
type Chart struct {
	Title  string  `json:"title"`
	Panels []Panel `json:"panels"`
}

// Panel is a set of bars over one axis, which begins at 0.
type Panel struct {
	Title string `json:"title"`
	Bars  []Bar  `json:"bars"`
}

// Bar is a number, 0 or more, of a name. Names are any texts.
type Bar struct {
	Name   string    `json:"name"`
	Value  float64   `json:"value"`
	Rounds []float64 `json:"rounds"` // what it is the median of; a line goes from the least to the largest
	Ours   bool      `json:"ours"`   // it has a colour of its own
}

// Sizes in pixels. A page of GitHub shows 720 of them unscaled.
const (
	width      = 720
	margin     = 16
	barsFrom   = 200 // the names stand left of it
	barsTo     = width - 120
	lineHeight = 20
)

// style has the colours of light and of dark pages.
const style = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 }
.page { fill: #ffffff } .other { fill: #9aa4af } .ours { fill: #0969da } .rounds { stroke: #1f2328 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .page { fill: #0d1117 } .other { fill: #57606a } .ours { fill: #58a6ff } .rounds { stroke: #e6edf3 }
}
</style>
`

// SVG returns the picture. Equal charts have equal bytes.
func (c *Chart) SVG() []byte {
	var d drawing
	d.text("title", margin, 24, c.Title)
	d.y = 36
	for _, p := range c.Panels {
		d.panel(p)
	}
	height := d.y + margin
	head := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\">\n", width, height, width, height)
	page := fmt.Sprintf("<rect class=\"page\" width=\"%d\" height=\"%.0f\"/>\n", width, height)
	return slices.Concat([]byte(head+style+page), d.Bytes(), []byte("</svg>\n"))
}

// drawing is a picture under way.
type drawing struct {
	bytes.Buffer
	y float64 // of the next line
}

// text adds a text whose baseline begins at x, y.
func (d *drawing) text(class string, x, y float64, text string) {
	fmt.Fprintf(d, "<text class=%q x=\"%.0f\" y=\"%.0f\">%s</text>\n", class, x, y, html.EscapeString(text))
}

// panel adds bars. One more than three times as long as the next is cut off.
func (d *drawing) panel(p Panel) {
	d.y += lineHeight
	d.text("title", margin, d.y, p.Title)
	d.y += lineHeight / 2
	all := []float64{0, 0}
	for _, b := range p.Bars {
		all = append(all, slices.Max(append([]float64{b.Value}, b.Rounds...)))
	}
	slices.Sort(all)
	end := cmp.Or(all[len(all)-1], 1)
	if next := all[len(all)-2]; next > 0 && end > 3*next {
		end = 1.2 * next
	}
	for _, b := range p.Bars {
		d.bar(b, end)
	}
}

// bar adds a bar on an axis from 0 to end.
func (d *drawing) bar(b Bar, end float64) {
	at := func(value float64) float64 { return barsFrom + (barsTo-barsFrom)*min(value/end, 1) }
	middle, right, class := d.y+lineHeight/2, at(b.Value), "other"
	if b.Ours {
		class = "ours"
	}
	d.text("name", margin, middle+4, b.Name)
	fmt.Fprintf(d, "<rect class=%q x=\"%d\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"/>\n", class, barsFrom, d.y+3, right-barsFrom, lineHeight-6)
	if len(b.Rounds) > 1 {
		low, high := at(slices.Min(b.Rounds)), at(slices.Max(b.Rounds))
		fmt.Fprintf(d, "<path class=\"rounds\" d=\"M%.1f %.0fH%.1f\"/>\n", low, middle, high)
		right = max(right, high)
	}
	value := strconv.FormatFloat(b.Value, 'f', 1, 64)
	if b.Value > end {
		value += ", cut off"
	}
	d.text("value", right+6, middle+4, value)
	d.y += lineHeight
}
