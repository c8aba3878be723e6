package conformance

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDirectoryReplacesEmbedded(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "one.json"), []byte(`{"cases":[{"id":"x"}]}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "none.json"), []byte(`{"cases":[]}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cut.json"), []byte(`{"cases":[`), 0o600))
	var file struct {
		Cases []struct{ ID string }
	}
	require.NoError(t, load(dir, "one.json", &file))
	assert.Equal(t, "x", file.Cases[0].ID)
	assert.ErrorIs(t, load(dir, "find_hit.json", &file), os.ErrNotExist, "must not fall back to the embedded copy")
	assert.NoError(t, load(dir, "extra/negative-2026-06-20.json", &file), "extra files are not replaced")
	assert.ErrorContains(t, load(dir, "none.json", &file), "no cases")
	assert.ErrorContains(t, load(dir, "cut.json", &file), "cut.json")
	assert.Error(t, load("", "absent.json", &file))
}

func TestRelativeDirectoryIsFromModuleRoot(t *testing.T) {
	got, err := resolve("some/where")
	require.NoError(t, err)
	want, err := filepath.Abs("../../some/where")
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// recordingTB is a testing.TB that records failures instead of failing.
type recordingTB struct {
	testing.TB
	failures []string
}

func (r *recordingTB) Helper() {}
func (r *recordingTB) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	tb := &recordingTB{TB: t}
	r := NewReport(tb, "a.json")
	r.out = &out
	r.Add("1", Verdict{})
	r.Add("2", Skipped("not built"))
	r.Add("3", Skipped("not built"))
	r.Add("4", Differs("got %d", 5))
	r.Done()
	assert.Equal(t, "a.json: 4 cases, 2 skipped, 1 differ\n  skipped 2: not built\n", out.String())
	require.Len(t, tb.failures, 1)
	assert.Contains(t, tb.failures[0], "4: got 5")

	out.Reset()
	tb = &recordingTB{TB: t}
	r = NewReport(tb, "b.json")
	r.out = &out
	r.Done()
	assert.Equal(t, "b.json: 0 cases, 0 skipped, 0 differ\n", out.String())
	assert.Len(t, tb.failures, 1, "a report without cases must fail")
}
