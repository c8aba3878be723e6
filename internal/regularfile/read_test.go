package regularfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What may have no end, or none soon, is refused at once; links are followed.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(path("file"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink("file", path("link")))
	require.NoError(t, syscall.Mkfifo(path("pipe"), 0o600))
	require.NoError(t, os.WriteFile(path("large"), make([]byte, maxSize+1), 0o600))
	text, err := Read(path("link"))
	require.NoError(t, err)
	assert.Equal(t, "text", string(text))
	for name, want := range map[string]string{
		path("none"):  "no such file or directory",
		path("pipe"):  path("pipe") + " is not a regular file",
		dir:           dir + " is not a regular file",
		"/dev/zero":   "/dev/zero is not a regular file",
		path("large"): path("large") + " has 4194305 bytes, more than 4194304",
	} {
		_, err := Read(name)
		assert.ErrorContains(t, err, want)
	}
}
