package capacity

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/measure/measuretest"
	"github.com/hitline/hitline/bench/workload"
)

const excerpt = "../testdata/conversation_excerpt.jsonl"

func options(capacities ...int) Options {
	return Options{Trace: workload.FileTrace(excerpt), Capacities: capacities, OnStep: func(string, int, int) {}}
}

func TestRun(t *testing.T) {
	o := options(50_000, 100)
	steps := 0
	o.OnStep = func(_ string, done, total int) {
		assert.Equal(t, []int{steps, 2}, []int{done, total})
		steps++
	}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, 2, steps)
	require.Len(t, r.Rows, 2)
	assert.Equal(t, Row{50_000, 4144, 4144, 4144, 4144}, r.Rows[0])
	c := r.Rows[1]
	assert.Less(t, c.Belady, int64(4144))
	assert.GreaterOrEqual(t, c.Belady, c.TailLRU)
	assert.GreaterOrEqual(t, c.TailLRU, c.LRU)
	assert.Positive(t, c.Hitline)

	var line, table bytes.Buffer
	require.NoError(t, measure.WriteJSON(&line, r))
	var got map[string]any
	require.NoError(t, json.Unmarshal(line.Bytes(), &got))
	assert.NotEmpty(t, got["setup"])
	delete(got, "setup")
	rows := got["capacities"].([]any)
	got["capacities"] = rows[0]
	assert.Equal(t, map[string]any{
		"trace": excerpt, "requests": 799.0, "hashes": 21951.0, "block_size": 512.0,
		"capacities": map[string]any{"capacity": 50_000.0, "hitline": 4144.0, "lru": 4144.0, "tail_lru": 4144.0, "belady": 4144.0},
	}, got)
	require.NoError(t, r.WriteTable(&table))
	lines := strings.Split(table.String(), "\n")
	assert.Equal(t, []string{"entries", "hitline", "LRU", "tail-first", "LRU", "clairvoyant"}, strings.Fields(lines[len(lines)-4]))
	assert.Equal(t, []string{"50,000", "4,144", "4,144", "4,144", "4,144"}, strings.Fields(lines[len(lines)-3]))
}

// liar is an index that holds as many entries and answers as much as it says.
type liar struct {
	held, hits int
}

func (l liar) leading([]byte) int { return l.hits }
func (l liar) store([]byte) error { return nil }
func (l liar) entries() int64     { return int64(l.held) }

func TestRunFindsWrongAnswers(t *testing.T) {
	for want, x := range map[string]liar{
		"capacity: 101 entries under a bound of 100":     {held: 101},
		"hits in 100 entries; 1320 is the most possible": {held: 100, hits: 10},
	} {
		o := options(100)
		o.open = func(int) (bounded, error) { return x, nil }
		_, err := Run(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
}

func TestOptions(t *testing.T) {
	measuretest.RefusedOptions(t, options(1), Options.Validate, map[string]func(*Options){
		"no trace":                      func(o *Options) { o.Trace = workload.Trace{} },
		"no number of entries":          func(o *Options) { o.Capacities = nil },
		"0 entries; give 1 to":          func(o *Options) { o.Capacities = []int{5, 0} },
		"1073741825 entries; give 1 to": func(o *Options) { o.Capacities = []int{MaxEntries + 1} },
		"[5 7 5]: one of them is there": func(o *Options) { o.Capacities = []int{5, 7, 5} },
	})
	_, err := Run(t.Context(), options())
	require.ErrorIs(t, err, measure.ErrOptions)
}

func TestRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := options(10, 20)
	o.OnStep = func(_ string, done, _ int) {
		assert.Zero(t, done, "it goes on")
		cancel()
	}
	_, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	o = options(10)
	o.Trace = workload.FileTrace("none")
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, workload.ErrTrace)
}
