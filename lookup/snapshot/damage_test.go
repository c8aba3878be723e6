package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/hitline/hitline/internal/partstest"
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

// forged is a snapshot whose checksums are right, of what a test has made.
type forged struct {
	format uint32
	file   any
	pools  []forgedPool
}

type forgedPool struct {
	info    any
	records []*index.DumpRecord
	raw     []byte // what follows them
}

func (f *forged) bytes() []byte {
	var out bytes.Buffer
	w := parts.NewWriter(&out, magic, cmp.Or(f.format, format))
	w.JSON(f.file)
	for _, p := range f.pools {
		w.Section()
		w.JSON(p.info)
		for _, r := range p.records {
			writeRecord(w, r, nil)
		}
		partstest.Raw(w, p.raw)
	}
	if err := w.End(); err != nil {
		panic(err) // a buffer does not fail
	}
	return out.Bytes()
}

// What is wrong behind right checksums is refused too.
func TestForgedFiles(t *testing.T) {
	srv := newServer(t, ownPool, otherPool)
	file := fileInfo{Created: time.Now()}
	own := infoOf(srv.Pools()[0])
	run := &index.DumpRecord{Kind: index.DumpRun, Places: []int{0}, Keys: chain(1, 3), HashLen: hashLen}
	path := filepath.Join(t.TempDir(), "forged")
	write := func(f forged) { require.NoError(t, os.WriteFile(path, f.bytes(), 0o600)) }
	with := func(records ...*index.DumpRecord) []forgedPool { return []forgedPool{{info: own, records: records}} }
	raw := func(b ...byte) []forgedPool { return []forgedPool{{own, []*index.DumpRecord{run}, b}} }
	for want, f := range map[string]forged{
		"it has format 1, and this program reads format 2": {1, file, with(run)},
		`pool "" is in it twice`:                           {0, file, slices.Repeat(with(run), 2)},
		"JSON that cannot be read":                         {0, "no file", with(run)},
		"in part 1: JSON that cannot be read":              {0, file, []forgedPool{{info: 1}}},
		"the section ends in the middle of a value":        {0, file, raw(2, 2, 0, 32, 32, 1)},
		"a record of group rank 65536; at most 65535":      {0, file, raw(2, 3, 0xff, 0xff, 3, 0, 0, 0)},
		"a number of 65538; at most 65537 is possible":     {0, file, raw(2, 0x82, 0x80, 4, 0, 0, 0, 0)},
		"a number of 65; at most 64 is possible":           {0, file, raw(2, 2, 0, 65)},
		"a record with 1 bytes of keys of 0 bytes":         {0, file, raw(2, 2, 0, 0, 1, 1)},
		"a record with 3 bytes of keys of 2 bytes":         {0, file, raw(2, 2, 0, 2, 3, 1, 1, 1)},
		"index: place outside the pool":                    {0, file, with(&index.DumpRecord{Kind: index.DumpRun, Places: []int{1}, Keys: chain(1, 3), HashLen: hashLen})},
		"index: bad record of a dump: kind 77":             {0, file, raw(77, 2, 0, 32, 0)},
	} {
		t.Run(want, func(t *testing.T) {
			write(f)
			assert.Contains(t, refused(t, srv, path, want), want)
		})
	}
	write(forged{0, file, with(run)})
	_, st := load(t, srv, path)
	assert.Equal(t, int64(3), st.LoadedEntries, "the rest is right")
}

// Long texts, many pools and times far off are told in a few words.
func TestForgedTexts(t *testing.T) {
	srv := newServer(t, ownPool, otherPool)
	file, long := fileInfo{Created: time.Now()}, strings.Repeat("x", 500_000)
	path := filepath.Join(t.TempDir(), "forged")
	told := func(file any, pools ...forgedPool) (log string, st *Status) {
		require.NoError(t, os.WriteFile(path, (&forged{0, file, pools}).bytes(), 0o600))
		log, st = load(t, srv, path)
		require.Zero(t, st.LoadedEntries)
		require.Less(t, len(st.LoadError), 2000)
		require.Less(t, len(log), 8000)
		return log, st
	}
	_, st := told(file, forgedPool{info: poolInfo{Name: long, Described: true}})
	assert.Contains(t, st.LoadError, `xxx…": server: a pool's name is 1 to 255`)
	_, st = told(map[string]string{"created": long})
	assert.Regexp(t, `in part 0: JSON that cannot be read: parsing time "x+$`, st.LoadError)
	_, st = told(fileInfo{Created: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
	assert.Regexp(t, `it was written \d+h\d+m\S+s in the future`, st.LoadError)
	_, st = told(file, forgedPool{info: poolInfo{Described: true}})
	assert.Contains(t, st.LoadError, `pool "": it is described otherwise now`)

	var pools []forgedPool
	for i := range 1000 {
		pools = append(pools, forgedPool{info: poolInfo{Name: fmt.Sprint(i)}})
	}
	log, st := told(file, pools...)
	assert.Equal(t, maxTold+2, strings.Count(log, "\n"))
	assert.Contains(t, log, `"msg":"further pools of the snapshot are left out","pools":990}`)
	assert.Contains(t, st.LoadError, `pool "9": it is no longer configured; and 990 more`)
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
	f := forged{0, fileInfo{}, []forgedPool{{info: poolInfo{}, records: slices.Repeat([]*index.DumpRecord{{Kind: index.DumpReset}}, 1000)}}}
	ctx, cancel := context.WithCancelCause(t.Context())
	v := &ending{end: cancel}
	_, err := readAll(ctx, bytes.NewReader(f.bytes()), v)
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
	longest := filepath.Join(dir, strings.Repeat("x", maxName))
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
