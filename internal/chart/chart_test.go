package chart

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSVG(t *testing.T) {
	chart := Chart{"a title", []Panel{
		{"cut", []Bar{{"none", 5267.2, []float64{5214, 5287}, false}, {"own", 43.8, []float64{36.7, 50}, false}, {"hitline", 41.3, nil, true}}},
		{"alone", []Bar{{"a < b", 4.1, nil, false}}},
		{"nothing", []Bar{{"zero", 0, nil, false}}},
		{"no bars", nil},
	}}
	got := chart.SVG()
	require.NoError(t, xml.Unmarshal(got, &struct{}{}), "well formed")
	text := string(got)
	for _, want := range []string{
		">a title<", ">5267.2, cut off<", ">43.8<", ">a &lt; b<", ">4.1<", ">0.0<", ">no bars<", `<rect class="ours"`,
		`width="400.0"`, `width="292.0"`, // what is far longer than all others is cut off, at 1.2 of the next's largest round
		`M444.7 `, `H533.3"`,
	} {
		assert.Contains(t, text, want)
	}
	assert.Equal(t, 2, strings.Count(text, `class="rounds"`))
	assert.Equal(t, got, chart.SVG())
}
