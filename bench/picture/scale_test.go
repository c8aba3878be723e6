package picture

import (
	"image/color"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/vg"
)

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
		"from 0":          {linear, 3, 19, "0 5 10 15"},
		"large":           {linear, 1, 1_040_000, "0 200k 400k 600k 800k 1M"},
		"nothing":         {linear, 0, 0, "0 0.2 0.4 0.6 0.8 1"},
		"percentiles":     {percentile, 0.5, 0.9999, "50 90 99 99.9 99.99"},
		"few percentiles": {percentile, 0.5, 0.9, "50 90 99"},
		"per cent":        {hundred, 3, 4, "0 20 40 60 80 100"},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := tt.scale.bounds(tt.low, tt.high)
			assert.LessOrEqual(t, from, tt.low)
			assert.GreaterOrEqual(t, to, tt.high)
			var labels []string
			for _, tick := range tt.scale.Ticks(tt.scale.place(from), tt.scale.place(to)) {
				if !tick.IsMinor() {
					labels = append(labels, tick.Label)
				}
			}
			assert.Equal(t, tt.want, strings.Join(labels, " "))
		})
	}
}

// Long descriptions break at spaces, and what has none is cut.
func TestWrap(t *testing.T) {
	style := light.write(textSize, light.ink)
	text := strings.Repeat("closed loop, 16 connections ", 9) + strings.Repeat("trace", 50)
	lines := wrap(text, style, 200)
	assert.Greater(t, len(lines), 5)
	for _, line := range lines {
		assert.LessOrEqual(t, style.Width(line), vg.Length(200))
	}
	assert.True(t, strings.HasPrefix(lines[len(lines)-1], "tracetrace") && strings.HasSuffix(lines[len(lines)-1], "…"))
	assert.True(t, strings.HasPrefix(text, strings.Join(lines[:len(lines)-1], " ")))
	assert.Empty(t, wrap("", style, 200))
}

// Text and curves stand out from the page, be it light or dark. The ratios are
// those of WCAG, which asks 4.5 for text.
func TestContrast(t *testing.T) {
	assert.Greater(t, luminance(light.background), 0.9)
	assert.Less(t, luminance(dark.background), 0.02)
	for _, theme := range []theme{light, dark} {
		contrast := func(c color.Color) float64 {
			a, b := luminance(c)+0.05, luminance(theme.background)+0.05
			return max(a/b, b/a)
		}
		assert.Greater(t, contrast(theme.ink), 7.0)
		assert.Greater(t, contrast(theme.faint), 4.5)
		assert.Less(t, contrast(theme.grid), 1.5, "stays behind the data")
		for _, c := range theme.palette {
			assert.Greater(t, contrast(c), 2.0, "%v", c)
		}
	}
}

func luminance(c color.Color) float64 {
	linear := func(v uint32) float64 {
		x := float64(v) / 0xFFFF
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	r, g, b, _ := c.RGBA()
	return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
}

// Bars reach from the least to the largest, on the axis, and only where they are
// known.
func TestSpreads(t *testing.T) {
	p := panel{x: axis{scale: linear}, y: axis{scale: log}}
	s := p.spreads([]point{{x: 1, y: 10}, {x: 2, y: 100, low: 10, high: 10000}})
	require.Equal(t, 1, s.Len())
	x, y := s.XY(0)
	low, high := s.YError(0)
	assert.Equal(t, []float64{2, 2, 1, 2}, []float64{x, y, low, high})
}

// Curves differ in colour and marker, and neighbours in dashes.
func TestStyles(t *testing.T) {
	seen := map[any]bool{}
	for i := range 56 {
		marker := light.marker(i, measured)
		seen[[2]any{marker.Color, marker.Shape}] = true
		assert.NotEqual(t, light.line(i, measured).Dashes, light.line(i+1, measured).Dashes)
	}
	assert.Len(t, seen, 56)
	f := figure{panels: []panel{
		{curves: []curve{{role: bound}, {}, {role: rings}, {}}},
		{curves: []curve{{}}},
	}}
	assert.Equal(t, [][]int{{0, 0, 1, 1}, {2}}, f.styles())
}
