package lookuptest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMannWhitney(t *testing.T) {
	x := []float64{1, 2, 3, 4, 5, 6, 7, 8}
	require.Zero(t, mannWhitney(x, x))
	require.InDelta(t, 3.36, mannWhitney(x, []float64{9, 10, 11, 12, 13, 14, 15, 16}), 0.01)
	require.InDelta(t, -3.36, mannWhitney([]float64{9, 10, 11, 12, 13, 14, 15, 16}, x), 0.01)
	require.InDelta(t, 1, mannWhitney([]float64{1, 1, 2, 2}, []float64{1, 2, 2, 3}), 0.2)
}
