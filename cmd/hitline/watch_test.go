package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writeAt writes a file with a time of its own: two writes may be too near for a clock to tell.
func writeAt(t *testing.T, path, text string, second int64) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(second, 0)))
}

// A file that has changed is found at the second look at which it is the same.
func TestFileWatch(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	link := filepath.Join(dir, "link")
	writeAt(t, a, "1", 1)
	writeAt(t, b, "1", 1)
	require.NoError(t, os.Symlink("a", link))
	w := watchFiles(readVersions([]string{a, link}))
	poll := func() []string {
		next, changed, versions := w.poll()
		w = next
		if len(changed) > 0 {
			require.True(t, versions.areCurrent())
			for _, path := range changed {
				w.taken[path] = versions[path]
			}
		}
		return changed
	}
	for range 3 {
		require.Empty(t, poll(), "nothing has changed")
	}

	writeAt(t, a, "2", 2)
	require.Empty(t, poll(), "it may not be finished")
	writeAt(t, a, "3", 3)
	require.Empty(t, poll(), "it was not")
	require.Equal(t, []string{a, link}, poll())
	require.Empty(t, poll())

	writeAt(t, a, "3", 4)
	for range 3 {
		require.Empty(t, poll(), "the same text")
	}
	require.True(t, w.taken[a].isAt(look(a)), "it is not read again each time")

	writeAt(t, b, "4", 4)
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink("b", link))
	require.Empty(t, poll())
	require.Equal(t, []string{link}, poll(), "another link, as Kubernetes does it")

	writeAt(t, filepath.Join(dir, "new"), "5", 4) // the same size and time
	require.NoError(t, os.Rename(filepath.Join(dir, "new"), a))
	require.Empty(t, poll())
	require.Equal(t, []string{a}, poll(), "another file of that name")
}

// A file that is gone is found at each poll, until it is there again.
func TestFileWatchMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	writeAt(t, path, "1", 1)
	w := watchFiles(readVersions([]string{path}))
	poll := func() (changed []string) {
		w, changed, _ = w.poll()
		return changed
	}
	poll()
	require.NoError(t, os.Remove(path))
	for i := range 3 {
		assert.Equal(t, i > 0, len(poll()) > 0)
	}
	writeAt(t, path, "1", 2)
	for range 3 {
		assert.Empty(t, poll(), "as it was")
	}
}

// A file that changes while it is read is not taken.
func TestFileVersionsAreCurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	versions := readVersions([]string{path})
	assert.True(t, versions.areCurrent(), "missing")
	writeAt(t, path, "1", 1)
	assert.False(t, versions.areCurrent())
	versions = readVersions([]string{path})
	assert.True(t, versions.areCurrent())
	writeAt(t, path, "2", 2)
	assert.False(t, versions.areCurrent())
}
