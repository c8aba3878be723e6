package snapshot

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/index"
)

// refused loads a damaged file, and requires that it is refused by one line and that nothing of it is kept.
// The server is used for the next one.
func refused(t *testing.T, srv Server, path, what string) string {
	t.Helper()
	log, st := load(t, srv, path)
	require.Equal(t, 1, strings.Count(log, "\n"), "%s: %s", what, log)
	require.Contains(t, log, "the snapshot is refused; starting empty", what)
	require.Contains(t, log, path, what)
	require.NotEmpty(t, st.LoadError, what)
	require.Zero(t, st.LoadedEntries, what)
	for _, p := range srv.Pools() {
		require.Zero(t, p.Service.Index().Stats().Entries, what)
	}
	return st.LoadError
}

// Of a damaged snapshot nothing is loaded, also not what is in front of the damage. Package parts has the kinds of damage.
func TestDamagedFilesAreRefused(t *testing.T) {
	whole, err := os.ReadFile(snapshotOf(t, filled(t, 10_000))) // more than a part
	require.NoError(t, err)
	srv := newServer(t, ownPool, otherPool)
	path := filepath.Join(t.TempDir(), "damaged")
	damaged := slices.Clone(whole)
	damaged[len(damaged)-1] ^= 1
	require.NoError(t, os.WriteFile(path, damaged, 0o600))
	assert.Contains(t, refused(t, srv, path, "damaged"), "the checksum of the part is wrong")

	require.NoError(t, os.WriteFile(path, whole, 0o600)) // the server is none the worse for it
	_, st := load(t, srv, path)
	assert.Equal(t, int64(10_021), st.LoadedEntries)
	assert.Equal(t, 10_000, hitBlocks(t, pool(t, srv, ""), chain(1, 10_000)))
}

var errEnded = errors.New("ended")

// ending ends a context with the first record.
type ending struct {
	inspector
	end     context.CancelCauseFunc
	records int
}

func (v *ending) record(*index.DumpRecord) error {
	v.records++
	v.end(errEnded)
	return nil
}

// The end of ctx is noticed at the next record: a part may have many that cost much.
func TestInterruptedInAPart(t *testing.T) {
	var out bytes.Buffer
	w := newWriter(&out, fileInfo{})
	w.beginPool(poolInfo{})
	for range 1000 {
		require.NoError(t, w.add(&index.DumpRecord{Kind: index.DumpReset}))
	}
	require.NoError(t, w.End())
	ctx, cancel := context.WithCancelCause(t.Context())
	v := &ending{end: cancel}
	_, err := readAll(ctx, &out, v)
	assert.ErrorIs(t, err, errEnded)
	assert.Equal(t, 1, v.records)
}

// What is no regular file is neither read nor replaced.
func TestNoRegularFile(t *testing.T) {
	dir := t.TempDir()
	whole := snapshotOf(t, filled(t, 10))
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	require.NoError(t, os.Symlink(whole, link))
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	for _, path := range []string{link, pipe, dir} {
		assert.ErrorContains(t, CheckPath(path), "is no regular file", path)
		_, err := Inspect(t.Context(), path)
		assert.Error(t, err, path)
	}
	assert.ErrorContains(t, CheckPath(filepath.Join(dir, "no", "index")), "no such file")
	assert.ErrorContains(t, CheckPath(filepath.Join(whole, "index")), "is no folder")
	_, err := Inspect(t.Context(), whole)
	assert.NoError(t, err)
}

// What killed writers have left is removed, what a writer holds is not.
func TestLeftovers(t *testing.T) {
	path := snapshotOf(t, filled(t, 10))
	left := path + ".123" + temporarySuffix
	others := []string{path + ".keep", path + "2.123" + temporarySuffix}
	for _, name := range append(others, left) {
		require.NoError(t, os.WriteFile(name, []byte("x"), 0o600))
	}
	require.NoError(t, replaceFile(path, func(f *os.File) error {
		newSaver(t, newServer(t, ownPool, otherPool), path)
		_, err := f.WriteString("new")
		return err
	}))
	assert.NoFileExists(t, left)
	for _, name := range others {
		assert.FileExists(t, name)
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "new", string(text))
}
