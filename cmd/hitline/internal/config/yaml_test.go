package config

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only regular files of a bounded size are read.
func TestReadRegular(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	large := write(t, strings.Repeat("#", maxText)+"\n")
	for path, want := range map[string]string{
		pipe:  "cannot read the configuration: " + pipe + " is not a regular file",
		large: large + ": has 262145 bytes, more than 262144",
	} {
		_, err := Load(Source{File: path})
		require.ErrorContains(t, err, want)
	}
}
