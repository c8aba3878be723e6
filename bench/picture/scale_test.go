package picture

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
