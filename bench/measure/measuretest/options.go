// Package measuretest has what tests of several measurements share. No promise: it is internal to
// this module, and its API may change in any release.
package measuretest

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// RefusedOptions wants check to accept the good options, and to refuse them with an error
// that wraps [measure.ErrOptions] once they were spoiled. The keys of spoil are what the error
// must contain.
func RefusedOptions[Options any](t *testing.T, good Options, check func(Options) error, spoil map[string]func(*Options)) {
	t.Helper()
	require.NoError(t, check(good))
	for _, want := range slices.Sorted(maps.Keys(spoil)) {
		o := good
		spoil[want](&o)
		err := check(o)
		require.ErrorIs(t, err, measure.ErrOptions, want)
		assert.ErrorContains(t, err, want)
	}
}
