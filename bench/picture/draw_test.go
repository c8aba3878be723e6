package picture

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// node is an element of SVG.
type node struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	Nodes   []node     `xml:",any"`
	Text    string     `xml:",chardata"`
}

func (n node) attr(name string) string {
	for _, a := range n.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (n node) number(t *testing.T, name string) float64 {
	v, err := strconv.ParseFloat(n.attr(name), 64)
	require.NoError(t, err, "%s of %v", name, n)
	return v
}

// box is a rectangle.
type box struct {
	text                     string
	left, right, top, bottom float64
}

func (b box) overlaps(c box) bool {
	return b.left < c.right && c.left < b.right && b.top < c.bottom && c.top < b.bottom
}

// drawing is what the tests look at of an SVG.
type drawing struct {
	root       node
	background string
	height     float64
	plots      []box
	lines      []box // of text
	labels     []node
	curves     []node
}

// parse reads a drawing, and fails unless it is well-formed.
func parse(t *testing.T, content []byte) *drawing {
	t.Helper()
	d := &drawing{}
	require.NoError(t, xml.Unmarshal(content, &d.root))
	d.height = d.root.number(t, "height")
	assert.Equal(t, fmt.Sprintf("0 0 720 %v", d.height), d.root.attr("viewBox"))
	d.collect(t, d.root)
	return d
}

// collect adds what a node has.
func (d *drawing) collect(t *testing.T, n node) {
	for _, of := range n.Nodes {
		switch class := of.attr("class"); {
		case of.XMLName.Local == "text":
			d.lines = append(d.lines, boxOf(t, of))
		case of.XMLName.Local == "rect" && class == "plot":
			left, top := of.number(t, "x"), of.number(t, "y")
			d.plots = append(d.plots, box{"", left, left + of.number(t, "width"), top, top + of.number(t, "height")})
		case of.XMLName.Local == "rect":
			d.background = of.attr("fill")
		case class == "label":
			d.labels = append(d.labels, of)
		case class == "curve":
			d.curves = append(d.curves, of)
		}
		d.collect(t, of)
	}
}

// boxOf returns what a text covers.
func boxOf(t *testing.T, n node) box {
	size := textSize
	if n.attr("font-size") != "" {
		size = n.number(t, "font-size")
	}
	long := textWidth(n.Text, size)
	x, y := n.number(t, "x"), n.number(t, "y")
	x -= map[string]float64{"middle": long / 2, "end": long}[n.attr("text-anchor")]
	return box{n.Text, x, x + long, y - 0.75*size, y + 0.2*size}
}

func (d *drawing) texts() []string {
	var texts []string
	for _, l := range d.lines {
		texts = append(texts, l.text)
	}
	return texts
}

// check fails unless all texts are inside and apart, all points are inside a plot, each curve has
// one label or none, and the drawing says what it is.
func (d *drawing) check(t *testing.T) {
	t.Helper()
	assert.Equal(t, []string{"img", "system-ui, sans-serif"}, []string{d.root.attr("role"), d.root.attr("font-family")})
	assert.Equal(t, "title", d.root.Nodes[0].XMLName.Local)
	assert.Equal(t, "desc", d.root.Nodes[1].XMLName.Local)
	assert.NotEmpty(t, d.root.Nodes[0].Text)
	assert.Contains(t, d.root.Nodes[1].Text, " from ")
	for i, l := range d.lines {
		assert.True(t, l.left >= 0 && l.right <= width && l.top >= 0 && l.bottom <= d.height, "%v is not inside", l)
		for _, other := range d.lines[:i] {
			assert.False(t, l.overlaps(other), "%v and %v", l, other)
		}
		for _, p := range d.plots {
			if p.overlaps(l) {
				assert.Failf(t, "text over a plot", "%v", l)
			}
		}
	}
	require.NotEmpty(t, d.plots)
	lines := 0
	for _, c := range d.curves {
		for _, n := range c.Nodes {
			if n.XMLName.Local != "polyline" {
				continue
			}
			lines++
			for place := range strings.FieldsSeq(n.attr("points")) {
				var x, y float64
				_, err := fmt.Sscanf(place, "%g,%g", &x, &y)
				require.NoError(t, err)
				assert.True(t, slices.ContainsFunc(d.plots, func(p box) bool {
					return x >= p.left-0.1 && x <= p.right+0.1 && y >= p.top-0.1 && y <= p.bottom+0.1
				}), "%v, %v is in no plot", x, y)
			}
		}
	}
	assert.Len(t, d.labels, lines)
}

// Ticks must be few enough to read and enough to read from, whatever the range.
func TestTicks(t *testing.T) {
	for name, tt := range map[string]struct {
		scale     scale
		low, high float64
		want      string // labels
	}{
		"one decade":      {log, 12, 80, "10 20 50"},
		"a part of one":   {log, 31, 39, "30 40"},
		"around a ten":    {log, 81, 205, "80 90 100 200 300"},
		"decades":         {log, 9.9, 1742, "10 20 50 100 200 500 1k 2k"},
		"many decades":    {log, 1, 131072, "1 10 100 1k 10k 100k"},
		"below 1":         {log, 0.2, 3, "0.2 0.5 1 2"},
		"a single value":  {log, 100, 100, "100 200"},
		"just above":      {log, 100.1, 999, "100 200 500 1k"},
		"percentiles":     {percentile, 0.5, 0.9999, "50 90 99 99.9 99.99"},
		"few percentiles": {percentile, 0.5, 0.9, "50 90 99"},
		"per cent":        {hundred, 3, 4, "0 20 40 60 80 100"},
		"seconds":         {seconds, 0, 59, "0 s 10 s 20 s 30 s 40 s 50 s 60 s"},
		"minutes":         {seconds, 0, 1500, "0 min 5 min 10 min 15 min 20 min 25 min"},
		"hours":           {seconds, 0, 20000, "0 h 1 h 2 h 3 h 4 h 5 h"},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := tt.scale.bounds(tt.low, tt.high)
			assert.LessOrEqual(t, from, tt.low)
			assert.GreaterOrEqual(t, to, tt.high)
			var labels []string
			for _, mark := range tt.scale.ticks(tt.scale.place(from), tt.scale.place(to)) {
				if mark.label != "" {
					labels = append(labels, mark.label)
				}
			}
			assert.Equal(t, tt.want, strings.Join(labels, " "))
		})
	}
}

// Labels of ticks stay apart, and round numbers go first.
func TestThinned(t *testing.T) {
	for want, gap := range map[string]float64{"80 90 100 200 300": 1, "80 100 200 300": 6, "100 200": 20, "100": 80} {
		var labels []string
		ticks := thinned(log.ticks(log.place(80), log.place(300)), func(place float64) float64 { return 100 * place }, gap)
		assert.Len(t, ticks, 5)
		for _, mark := range ticks {
			if mark.label != "" {
				labels = append(labels, mark.label)
			}
		}
		assert.Equal(t, want, strings.Join(labels, " "), gap)
	}
	f := figure{title: "t", panels: []panel{{
		x: axis{"x", percentile}, y: axis{"y", log}, curves: []curve{{name: "c", points: []point{{x: 0.5, y: 700}, {x: 1 - 1e-14, y: 2900}}}},
	}}}
	f.panels = append(f.panels, f.panels[0])
	parse(t, f.draw(light)).check(t)
}

// Long descriptions break at spaces, and what has none is cut.
func TestWrap(t *testing.T) {
	text := strings.Repeat("closed loop, 16 connections ", 9) + strings.Repeat("trace", 50)
	lines := wrap(text, textSize, 200)
	assert.Greater(t, len(lines), 5)
	for _, line := range lines {
		assert.LessOrEqual(t, textWidth(line, textSize), 200.0)
	}
	assert.True(t, strings.HasPrefix(lines[len(lines)-1], "tracetrace") && strings.HasSuffix(lines[len(lines)-1], "…"))
	assert.True(t, strings.HasPrefix(text, strings.Join(lines[:len(lines)-1], " ")))
	assert.Empty(t, wrap("", textSize, 200))
}

// Labels stay at their curves where they can, and else share the way equally.
func TestSpread(t *testing.T) {
	const high = lineHeight + 2
	for name, tt := range map[string]struct{ from, want []float64 }{
		"apart":       {[]float64{20, 60, 180}, []float64{20, 60, 180}},
		"two at once": {[]float64{100, 100}, []float64{100 - high/2, 100 + high/2}},
		"at the top":  {[]float64{0, 1}, []float64{high / 2, high * 3 / 2}},
		"at the end":  {[]float64{20, 198, 200}, []float64{20, 200 - high*3/2, 200 - high/2}},
		"pushed on":   {[]float64{100, 100, 120}, []float64{320.0/3 - high, 320.0 / 3, 320.0/3 + high}},
		"none":        {},
	} {
		var labels []label
		for _, y := range tt.from {
			labels = append(labels, label{lines: []string{"x"}, y: y})
		}
		spread(labels, 0, 200)
		for i, l := range labels {
			assert.InDelta(t, tt.want[i], l.at, 0.5, "%s: %d", name, i)
		}
	}
}

// Text, labels and so curves stand out from the page, be it light or dark. The ratios are those
// of WCAG, which asks 4.5 for text.
func TestContrast(t *testing.T) {
	assert.Greater(t, luminance(t, light.background), 0.9)
	assert.Less(t, luminance(t, dark.background), 0.02)
	for _, theme := range []theme{light, dark} {
		contrast := func(colour string) float64 {
			a, b := luminance(t, colour)+0.05, luminance(t, theme.background)+0.05
			return max(a/b, b/a)
		}
		assert.Greater(t, contrast(theme.ink), 7.0)
		assert.Less(t, contrast(theme.grid), 1.5, "stays behind the data")
		for _, colour := range append(theme.palette, theme.faint) {
			assert.Greater(t, contrast(colour), 4.5, "%v", colour)
		}
	}
}

func luminance(t *testing.T, colour string) float64 {
	var rgb [3]uint8
	_, err := fmt.Sscanf(colour, "#%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2])
	require.NoError(t, err)
	sum := 0.0
	for i, share := range []float64{0.2126, 0.7152, 0.0722} {
		x := float64(rgb[i]) / 255
		if x <= 0.04045 {
			sum += share * x / 12.92
		} else {
			sum += share * math.Pow((x+0.055)/1.055, 2.4)
		}
	}
	return sum
}

// Curves differ in marker where they do not in colour.
func TestStyles(t *testing.T) {
	seen := map[style]bool{}
	for _, s := range light.styles([]panel{{curves: make([]curve, 56)}})[0] {
		s.width = 0
		seen[s] = true
	}
	assert.Len(t, seen, 56)
	styles := light.styles([]panel{
		{curves: []curve{{role: bound}, {}, {}}},
		{curves: []curve{{}}},
	})
	assert.Equal(t, []string{light.faint, light.palette[0], light.palette[1], light.palette[2]},
		[]string{styles[0][0].colour, styles[0][1].colour, styles[0][2].colour, styles[1][0].colour})
}

// Bars reach from the least to the largest, on the axis.
func TestBars(t *testing.T) {
	f := figure{panels: []panel{{
		x: axis{"x", log}, y: axis{"y", log}, curves: []curve{{name: "c", points: []point{{x: 1, y: 10}, {x: 10, y: 100, low: 10, high: 1000}}}},
	}}}
	d := parse(t, f.draw(light))
	plot, bars := d.plots[0], 0
	for _, n := range d.curves[0].Nodes {
		if n.attr("transform") == "" && n.XMLName.Local == "path" {
			var x, from, to float64
			_, err := fmt.Sscanf(n.attr("d"), "M%f %fh6m-3 0V%fm", &x, &from, &to)
			require.NoError(t, err)
			assert.Equal(t, []float64{plot.right - 3, plot.bottom, plot.top}, []float64{x, from, to})
			bars++
		}
	}
	assert.Equal(t, 1, bars)
}
