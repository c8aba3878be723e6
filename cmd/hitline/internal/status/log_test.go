package status

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/tokens"
)

// Every ten minutes in which there were lookups have a line of their own.
func TestLogSummaries(t *testing.T) {
	var buffer logtest.Buffer
	handler := slog.NewTextHandler(&buffer, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	log := summaryLog{logger: slog.New(handler), served: func() []any { return []any{"pools", 3} }}
	all := counted{durations: api.Histogram{Bounds: []float64{1e-5, 2e-5, 3e-3}, Counts: []uint64{0, 0, 0, 0}}}
	count := func(minutes int, lookups int64, place tokens.Place, n int64) {
		all.time += time.Duration(minutes) * time.Minute
		all.sums.lookups += lookups
		all.sums.tokens[place] += n
	}
	want := func(lines ...string) {
		t.Helper()
		log.step(all)
		assert.Equal(t, lines, buffer.Take())
	}
	count(9, 100, tokens.InPool, 600)
	want()
	all.durations.Counts = []uint64{0, 99, 1, 0}
	count(1, 0, tokens.New, 400)
	want(`level=INFO msg="summary of the last minutes" period=10m0s lookups=100 prompts=0 hit_share=0.6 no_answer_share=0 p50=20µs p99=20µs pools=3`)
	count(30, 0, tokens.Engine, 0)
	want()
	all.durations.Counts = []uint64{0, 99, 2, 0}
	count(9, 1, tokens.Evicted, 20)
	want()
	count(1, 0, tokens.NoAnswer, 10)
	want(`level=INFO msg="summary of the last minutes" period=10m0s lookups=1 prompts=0 hit_share=0 largest_loss=evicted largest_loss_share=0.667 no_answer_share=0.333 p50=3ms p99=3ms pools=3`)
	log.write(messageEnd, all)
	lines := buffer.Take()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], `msg="summary since the start" period=50m0s lookups=101`)
}
