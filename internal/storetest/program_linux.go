package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// MasterProgram returns the path of the release's mooncake_master.
func (w *Wheel) MasterProgram(t testing.TB) string {
	t.Helper()
	path, err := w.master()
	require.NoError(t, err)
	return path
}
