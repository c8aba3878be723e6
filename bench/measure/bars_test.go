package measure

import (
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBars(t *testing.T) {
	bars := func(fill func(h *hdrhistogram.Histogram)) string {
		h := hdrhistogram.New(1, int64(1e12), 3)
		fill(h)
		var table Table
		table.Bars(h)
		var text strings.Builder
		require.NoError(t, table.Write(&text))
		return text.String()
	}
	record := func(h *hdrhistogram.Histogram, ns, n int64) { require.NoError(t, h.RecordValues(ns, n)) }

	assert.Empty(t, bars(func(*hdrhistogram.Histogram) {}))
	one := bars(func(h *hdrhistogram.Histogram) { record(h, 5000, 3) })
	assert.Equal(t, "\n       ≤ 5.0 us            3  "+strings.Repeat("■", 40)+"\n", one)

	// A peak, and a tail of three orders of magnitude above it.
	text := bars(func(h *hdrhistogram.Histogram) {
		for i := range int64(1000) {
			record(h, 80_000+100*i, 10)
		}
		record(h, 90_000_000, 20)
	})
	lines := strings.Split(strings.TrimSpace(text), "\n")
	assert.Len(t, lines, numBars)
	assert.Contains(t, lines[numBars-1], " 100  ", "the slowest 1 % have a row of their own")
	assert.Contains(t, lines[numBars-1], "≤ 90")
	for _, line := range lines[:numBars-1] {
		assert.Contains(t, line, "■", "the peak is spread over the others")
	}
	assert.Equal(t, barWidth, strings.Count(lines[numBars-2], "■"), "the longest bar")
}
