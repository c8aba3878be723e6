package conformance

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKindFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	write("testdata/recorded.json.gz")
	fresh := write("fresh/events/vllm-0.33.0.json")
	write("fresh/events/other.txt")
	write("empty/events/other.txt")

	recorded := []string{filepath.Join("testdata", "recorded.json.gz")}
	for _, c := range []struct {
		name, dir string
		want      []string
	}{
		{"no directory is set", "", recorded},
		{"the directory has the kind", filepath.Join(dir, "fresh"), []string{fresh}},
		{"the directory lacks the kind", dir, recorded},
		{"the directory has no vectors of the kind", filepath.Join(dir, "empty"), nil},
	} {
		got, err := kindFiles(c.dir, "events")
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, got, c.name)
	}
}

func TestRunKind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envDir, dir)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "events"), 0o700))
	text := []byte(`{"cases":[{"id":"a","value":1},{"id":"b","value":2}]}`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "events", "one.json"), text, 0o600))
	var values []int
	RunKind(t, "events", func(c *struct{ Value int }) Verdict {
		values = append(values, c.Value)
		return Verdict{}
	})
	assert.Equal(t, []int{1, 2}, values)
}
