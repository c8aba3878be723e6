package vllm

import (
	"testing"

	"github.com/hitline/hitline/bench/measure"

	"github.com/stretchr/testify/require"
)

// TestFinish has the master end during the rounds of a cell whose hits are 0. Both answer 0
// then as before.
func TestFinish(t *testing.T) {
	for _, c := range []struct {
		before, after hitlineStat
		fails         bool
	}{
		{hitlineStat{Errors: 2, Timeouts: 1, Rejected: 3}, hitlineStat{Lookups: 9, Errors: 2, Timeouts: 1, Rejected: 3}, false},
		{hitlineStat{}, hitlineStat{Errors: 1}, true},
		{hitlineStat{}, hitlineStat{Timeouts: 1}, true},
		{hitlineStat{Rejected: 1}, hitlineStat{Rejected: 2}, true},
	} {
		err := measured().finish(c.before, c.after)
		if c.fails {
			require.ErrorIs(t, err, measure.ErrLost, c)
		} else {
			require.NoError(t, err, c)
		}
	}
}

// measured returns a cell that has run.
func measured() *cell {
	c := newCell(Options{}, Shape{}, All)
	c.rounds = map[string][]round{
		vllm:    {{micros: []float64{11, 30}}, {micros: []float64{24, 24}}, {micros: []float64{30, 90}}},
		hitline: {{micros: []float64{10, 10}}, {micros: []float64{20, 20}}, {micros: []float64{30, 30}}},
	}
	return c
}
