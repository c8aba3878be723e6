//go:build linux

package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	_, err := FindProgram("", "hitline-x", "build it")
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, "hitline-x is neither beside this program nor on PATH; build it")
	onPath := filepath.Join(dir, "hitline-x")
	require.NoError(t, os.WriteFile(onPath, nil, 0o700))
	self, err := os.Executable()
	require.NoError(t, err)
	beside := filepath.Join(filepath.Dir(self), "hitline-x")
	for _, want := range []string{onPath, beside} { // that beside the program goes first
		if want == beside {
			require.NoError(t, os.WriteFile(beside, nil, 0o700))
			defer os.Remove(beside)
		}
		got, err := FindProgram("", "hitline-x", "")
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	got, err := FindProgram(onPath, "hitline-x", "")
	require.NoError(t, err)
	assert.Equal(t, onPath, got)
	_, err = FindProgram("/no/such", "hitline-x", "")
	require.ErrorIs(t, err, measure.ErrOptions)
	require.NotErrorIs(t, err, ErrMissing)
}
