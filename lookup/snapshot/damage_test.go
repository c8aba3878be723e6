package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/parts"
)

// damages returns how many random cuts, and how many random flipped bytes, are tried.
func damages() int {
	if testing.Short() {
		return 100
	}
	return 1000
}

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

// No cut of a snapshot and none with a flipped byte loads anything.
func TestDamagedFilesAreRefused(t *testing.T) {
	whole, err := os.ReadFile(snapshotOf(t, filled(t, 300)))
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	srv := newServer(t, ownPool, otherPool)
	path := filepath.Join(t.TempDir(), "damaged")
	write := func(b []byte) {
		require.NoError(t, os.WriteFile(path, b, 0o600))
	}
	for range damages() {
		cut := random.IntN(len(whole))
		write(whole[:cut])
		refused(t, srv, path, "cut")

		b := slices.Clone(whole)
		at, flip := random.IntN(len(b)), byte(1+random.IntN(255))
		b[at] ^= flip
		write(b)
		refused(t, srv, path, "flipped")
	}
	for at := range headerLen + parts.HeaderLen {
		b := slices.Clone(whole)
		b[at]++
		write(b)
		refused(t, srv, path, "header")
	}
	write(append(slices.Clone(whole), 0))
	assert.Contains(t, refused(t, srv, path, "longer"), "something follows the end")
	write(nil)
	assert.Contains(t, refused(t, srv, path, "empty"), "ends in the middle")
	write([]byte("hello\n"))
	assert.Contains(t, refused(t, srv, path, "short"), "not a snapshot")

	write(whole) // the server is none the worse for it
	_, st := load(t, srv, path)
	assert.Equal(t, int64(321), st.LoadedEntries)
	assert.Equal(t, 300, hitBlocks(t, pool(t, srv, ""), chain(1, 300)))
}

// part is a part of a file with its header.
type part []byte

// split returns the header of a file and its parts.
func split(t *testing.T, file []byte) (header []byte, list []part) {
	t.Helper()
	rest := file[headerLen:]
	for len(rest) > 0 {
		n := parts.HeaderLen + int(binary.LittleEndian.Uint32(rest[4:]))
		list, rest = append(list, part(slices.Clone(rest[:n]))), rest[n:]
	}
	return file[:headerLen], list
}

// Parts of another snapshot of the same server, or in another order, do not fit.
func TestForeignParts(t *testing.T) {
	read := func() []byte {
		b, err := os.ReadFile(snapshotOf(t, filled(t, 40_000))) // more than a part
		require.NoError(t, err)
		return b
	}
	header, parts := split(t, read())
	_, others := split(t, read())
	require.Greater(t, len(parts), 8)
	path := filepath.Join(t.TempDir(), "mixed")
	srv := newServer(t, ownPool, otherPool)
	mixed := func(what string, parts ...part) string {
		require.NoError(t, os.WriteFile(path, append(slices.Clone(header), bytes.Join(asBytes(parts), nil)...), 0o600))
		return refused(t, srv, path, what)
	}
	for i := range parts {
		foreign := slices.Clone(parts)
		foreign[i] = others[i]
		assert.Contains(t, mixed("foreign", foreign...), "checksum")
		assert.Contains(t, mixed("missing", slices.Delete(slices.Clone(parts), i, i+1)...), map[bool]string{true: "ends in the middle", false: "damaged"}[i == len(parts)-1])
	}
	swapped := slices.Clone(parts)
	swapped[2], swapped[3] = swapped[3], swapped[2]
	assert.Contains(t, mixed("swapped", swapped...), "part 2 of the file is damaged")
}

func asBytes(parts []part) (list [][]byte) {
	for _, p := range parts {
		list = append(list, p)
	}
	return list
}

// forge returns a snapshot whose checksums are right, of parts that a test has made.
func forge(t testing.TB, version uint32, contents ...any) []byte {
	t.Helper()
	id := make([]byte, idLen)
	file := appendHeader(nil, id)
	binary.LittleEndian.PutUint32(file[len(magic):], version)
	binary.LittleEndian.PutUint32(file[headerLen-4:], parts.Checksum(file[:headerLen-4]))
	var out bytes.Buffer
	w := &writer{out: &out, parts: parts.NewWriter(&out, parts.Checksum(id), maxPart)}
	for _, p := range contents {
		switch p := p.(type) {
		case fileInfo:
			require.NoError(t, w.writeJSON(partFile, p))
		case poolInfo:
			require.NoError(t, w.writeJSON(partPool, p))
		case totals:
			require.NoError(t, w.writeJSON(partEnd, p))
		case map[string]string:
			require.NoError(t, w.writeJSON(partFile, p))
		case []byte:
			require.NoError(t, w.writePart(partRecords, append(make([]byte, parts.HeaderLen), p...)))
		case partKind:
			require.NoError(t, w.writePart(p, make([]byte, parts.HeaderLen)))
		}
	}
	return append(file, out.Bytes()...)
}

// What is wrong behind right checksums is refused too.
func TestForgedFiles(t *testing.T) {
	srv := newServer(t, ownPool, otherPool)
	file := fileInfo{Created: time.Now()}
	own := infoOf(srv.Pools()[0])
	run := appendRecord(nil, &index.DumpRecord{Kind: index.DumpRun, Places: []int{0}, Keys: chain(1, 3), HashLen: hashLen}, nil)
	ok := totals{Pools: 1, Records: 1, Entries: 3}
	edit := func(at int, b byte) []byte {
		edited := slices.Clone(run)
		edited[at] = b
		return edited
	}
	path := filepath.Join(t.TempDir(), "forged")
	write := func(version uint32, parts ...any) {
		require.NoError(t, os.WriteFile(path, forge(t, version, parts...), 0o600))
	}
	for _, test := range []struct {
		name, want string
		version    uint32
		parts      []any
	}{
		{"format", "a snapshot of format 2, and this program reads format 1", 2, []any{file, own, run, ok}},
		{"too old", "it is 2h0m0s old, and max_age is 1h0m0s", 1, []any{fileInfo{Created: time.Now().Add(-2 * time.Hour)}, own, run, ok}},
		{"no file", "part 0 is of kind 2", 1, []any{own, run, ok}},
		{"two files", "part 1 is of kind 1", 1, []any{file, file, own, run, ok}},
		{"no pool", "part 1 is of kind 3", 1, []any{file, run, ok}},
		{"pool twice", `pool "" is in it twice`, 1, []any{file, own, run, own, run, totals{Pools: 2, Records: 2, Entries: 6}}},
		{"unknown part", "a part of kind 9", 1, []any{file, own, partKind(9), run, ok}},
		{"totals", "it has", 1, []any{file, own, run, totals{Pools: 1, Records: 1, Entries: 4}}},
		{"no totals", "the totals cannot be read", 1, []any{file, own, run, partEnd}},
		{"cut record", errRecord.Error(), 1, []any{file, own, run[:len(run)-1], ok}},
		{"flag", errRecord.Error(), 1, []any{file, own, edit(1, 0x80), ok}},
		{"places of none", errRecord.Error(), 1, []any{file, own, edit(1, samePlaces), ok}},
		{"hash length", errRecord.Error(), 1, []any{file, own, edit(2, 65), ok}},
		{"no hash length", errRecord.Error(), 1, []any{file, own, edit(2, 0), ok}},
		{"place", "place", 1, []any{file, own, appendRecord(nil, &index.DumpRecord{Kind: index.DumpRun, Places: []int{1}, Keys: chain(1, 3), HashLen: hashLen}, nil), ok}},
		{"many places", errRecord.Error(), 1, []any{file, own, edit(recordHeader+8, 0xff), ok}},
		{"kind", "index: ", 1, []any{file, own, edit(0, 77), totals{Pools: 1, Records: 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			write(test.version, test.parts...)
			assert.Contains(t, refused(t, srv, path, test.name), test.want)
		})
	}
	write(1, file, own, run, ok)
	_, st := load(t, srv, path)
	assert.Equal(t, int64(3), st.LoadedEntries, "the parts are those of a snapshot")
}

// Long texts, many pools and times far off are told in a few words.
func TestForgedTexts(t *testing.T) {
	srv := newServer(t, ownPool, otherPool)
	file, long := fileInfo{Created: time.Now()}, strings.Repeat("x", 500_000)
	path := filepath.Join(t.TempDir(), "forged")
	told := func(parts ...any) (log string, st *Status) {
		require.NoError(t, os.WriteFile(path, forge(t, 1, parts...), 0o600))
		log, st = load(t, srv, path)
		require.Zero(t, st.LoadedEntries)
		require.Less(t, len(st.LoadError), 2000)
		require.Less(t, len(log), 8000)
		return log, st
	}
	_, st := told(file, poolInfo{Name: long, Described: true}, totals{Pools: 1})
	assert.Contains(t, st.LoadError, `xxx…": server: a pool's name is 1 to 255`)
	_, st = told(map[string]string{"created": long})
	assert.Regexp(t, `at byte 32: its description cannot be read: parsing time "x+…$`, st.LoadError)
	_, st = told(fileInfo{Created: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
	assert.Regexp(t, `it was written \d+h\d+m\S+s in the future`, st.LoadError)
	_, st = told(file, poolInfo{Described: true}, totals{Pools: 1})
	assert.Contains(t, st.LoadError, `pool "": it is described otherwise now`)

	parts := []any{file}
	for i := range 1000 {
		parts = append(parts, poolInfo{Name: fmt.Sprint(i)})
	}
	log, st := told(append(parts, totals{Pools: 1000})...)
	assert.Equal(t, mostTold+2, strings.Count(log, "\n"))
	assert.Contains(t, log, `"msg":"further pools of the snapshot are left out","pools":990}`)
	assert.Contains(t, st.LoadError, `pool "9": it is no longer configured; and 990 more`)
}

// ending ends a context with the first record.
type ending struct {
	inspector
	end     context.CancelCauseFunc
	records int
}

func (v *ending) record(*index.DumpRecord) error {
	v.records++
	v.end(errRecord)
	return nil
}

// The end of ctx is noticed at the next record: a part may have many that cost much.
func TestInterruptedInAPart(t *testing.T) {
	own := infoOf(newServer(t, ownPool, otherPool).Pools()[0])
	reset := appendRecord(nil, &index.DumpRecord{Kind: index.DumpReset}, nil)
	file := forge(t, 1, fileInfo{}, own, bytes.Repeat(reset, 1000), totals{Pools: 1, Records: 1000})
	ctx, cancel := context.WithCancelCause(t.Context())
	v := &ending{end: cancel}
	_, err := readAll(ctx, bytes.NewReader(file), v)
	assert.ErrorIs(t, err, errRecord)
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
	longest := filepath.Join(dir, strings.Repeat("x", mostName))
	assert.ErrorContains(t, CheckPath(longest+"x"), "is too long: 233 bytes, at most 232")
	assert.NoError(t, CheckPath(longest))
	assert.NoError(t, replaceFile(longest, func(*os.File) error { return nil }))
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
