package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A folder that somebody named by mistake is not deleted.
func TestBuildKeepsWhatIsNoLayout(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "mine"), nil, 0o600))
	assert.ErrorContains(t, writeLayout(folder, empty.Index, "1.0.0"), "no OCI layout")
	assert.FileExists(t, filepath.Join(folder, "mine"))
}
