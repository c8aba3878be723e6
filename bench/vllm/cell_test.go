package vllm

import (
	"testing"

	"github.com/hitline/hitline/bench/measure"

	"github.com/stretchr/testify/require"
)

// TestCheckStore has the master end during the rounds of a cell whose hits are 0. Both answer 0
// then as before.
func TestCheckStore(t *testing.T) {
	for _, c := range []struct {
		before, after hitlineStat
		fails         bool
	}{
		{hitlineStat{Errors: 2, Timeouts: 1, Rejected: 3}, hitlineStat{Lookups: 9, Errors: 2, Timeouts: 1, Rejected: 3}, false},
		{hitlineStat{}, hitlineStat{Errors: 1}, true},
		{hitlineStat{}, hitlineStat{Timeouts: 1}, true},
		{hitlineStat{Rejected: 1}, hitlineStat{Rejected: 2}, true},
	} {
		err := (&cell{before: c.before, after: c.after}).checkStore()
		if c.fails {
			require.ErrorIs(t, err, measure.ErrLost, c)
		} else {
			require.NoError(t, err, c)
		}
	}
}
