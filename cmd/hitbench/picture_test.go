package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPicture(t *testing.T) {
	dir := t.TempDir()
	from, out := filepath.Join(dir, "a.json"), filepath.Join(dir, "a.svg")
	row := `{"vllm":"0.32.0","ok":true,"chart":{"title":"streams","panels":[{"title":"p99","bars":[{"name":"own","value":2.5,"ours":true}]}]}}`
	require.NoError(t, os.WriteFile(from, []byte(row), 0o600))
	r := hitbench(t, "picture", "--from", from, "--out", out)
	require.Equal(t, exitDone, r.code, r.stderr)
	drawn, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Contains(t, string(drawn), ">2.5<")
	failed := filepath.Join(dir, "failed.json")
	require.NoError(t, os.WriteFile(failed, []byte(strings.Replace(row, "true", "false", 1)), 0o600))

	for want, args := range map[string][]string{
		"--out is required":                    {"--from", from},
		"--from: open /no/such.json: ":         {"--from", "/no/such.json", "--out", out},
		out + ": not one line of JSON: ":       {"--from", out, "--out", out},
		failed + ": no chart of a row that su": {"--from", failed, "--out", out},
	} {
		r := hitbench(t, append([]string{"picture"}, args...)...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, want)
	}
	r = hitbench(t, "picture", "--from", from, "--out", filepath.Join(from, "x"))
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, "cannot write the picture: ")
}
