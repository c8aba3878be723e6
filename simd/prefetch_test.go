package simd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrefetchDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	forEachKernel(t, func(t *testing.T) {
		Prefetch[byte](nil)
		var line [64]byte
		require.Zero(t, testing.AllocsPerRun(100, func() {
			lines := [2]*[64]byte{&line, nil}
			Prefetch(lines[:])
		}))
	})
}
