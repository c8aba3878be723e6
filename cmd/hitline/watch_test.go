package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// writeAt writes a file with a time of its own: two writes may be too near for a clock to tell.
func writeAt(t *testing.T, path, text string, second int64) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(second, 0)))
}

// A file that has changed is found, also one that has another link or is another file of that name.
func TestFileStates(t *testing.T) {
	dir := t.TempDir()
	a, b, link := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "link")
	writeAt(t, a, "1", 1)
	writeAt(t, b, "1", 1)
	require.NoError(t, os.Symlink("a", link))
	before := look([]string{a, b, link})
	changed := func() []string { return look([]string{a, b, link}).changed(before) }
	require.Empty(t, changed())

	writeAt(t, a, "2", 2)
	require.Equal(t, []string{a, link}, changed())
	writeAt(t, a, "1", 1)
	require.Empty(t, changed())
	writeAt(t, filepath.Join(dir, "new"), "1", 1) // the same size and time
	require.NoError(t, os.Rename(filepath.Join(dir, "new"), a))
	require.Equal(t, []string{a, link}, changed(), "another file of that name")
	before = look([]string{a, b, link})
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink("b", link))
	require.Equal(t, []string{link}, changed(), "another link, as Kubernetes does it")
	require.NoError(t, os.Remove(b))
	require.Equal(t, []string{b, link}, changed(), "missing")
	before = look([]string{a, b, link})
	require.Empty(t, changed())
}
