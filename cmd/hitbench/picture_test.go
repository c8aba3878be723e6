package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const measured = `{"requests":100,"p50_us":10,"p99_us":20,"max_us":30}`

func TestPicture(t *testing.T) {
	dir := t.TempDir()
	report := filepath.Join(dir, "a.json")
	require.NoError(t, os.WriteFile(report, []byte(measured), 0o600))
	out := filepath.Join(dir, "new", "hits")
	r := runWith(t.Context(), &fakeServer{}, "picture", "latency", "--from", report, "--from", "after="+report, "--out", out)
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Equal(t, out+".svg\n"+out+"-dark.svg\n", r.stdout)
	for path := range strings.FieldsSeq(r.stdout) {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Contains(t, string(content), ">a</text>")
		assert.Contains(t, string(content), ">after</text>")
	}
}

func TestPictureUsage(t *testing.T) {
	dir := t.TempDir()
	report, bad := filepath.Join(dir, "a.json"), filepath.Join(dir, "bad.json")
	require.NoError(t, os.WriteFile(report, []byte(measured), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte("{"), 0o600))
	for want, args := range map[string][]string{
		"give a kind: cost, latency, ":                            {"--from", report, "--out", "x"},
		`required flag(s) "from" not set`:                         {"latency", "--out", "x"},
		`required flag(s) "out" not set`:                          {"latency", "--from", report},
		"--out \"x/\" names no picture":                           {"latency", "--from", report, "--out", "x/"},
		"--from: open /no/such.json: no such file":                {"latency", "--from", "/no/such.json", "--out", "x"},
		`unknown kind "pie"; one of `:                             {"pie", "--from", report, "--out", "x"},
		"bad input: bad: not a report: unexpected EOF":            {"latency", "--from", bad, "--out", "x"},
		"bad input: a has no windows with requests; take what hi": {"replay", "--from", report, "--out", "x"},
	} {
		r := runWith(t.Context(), &fakeServer{}, append([]string{"picture"}, args...)...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, "hitbench: ")
		assert.Contains(t, r.stderr, want)
		assert.Equal(t, 1, strings.Count(withoutHint(r.stderr), "\n"), "one line: %q", r.stderr)
		assert.Empty(t, r.stdout)
	}
	r := runWith(t.Context(), &fakeServer{}, "picture", "latency", "--from", report, "--out", filepath.Join(report, "x"))
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, "cannot make the directory of the pictures: ")
}
