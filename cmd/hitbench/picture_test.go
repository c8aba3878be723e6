package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const capacities = `{"trace":"t","requests":1,"hashes":100,"block_size":512,"capacities":[{"capacity":10,"hitline":5,"lru":4,"belady":6},{"capacity":20,"hitline":7}]}`

func TestPicture(t *testing.T) {
	dir := t.TempDir()
	report := filepath.Join(dir, "a.json")
	require.NoError(t, os.WriteFile(report, []byte(capacities), 0o600))
	out := filepath.Join(dir, "new", "hits")
	r := runWith(t.Context(), &fakeServer{}, nil, "picture", "capacity", "--from", report, "--from", "after="+report, "--out", out)
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Equal(t, out+".svg\n"+out+"-dark.svg\n", r.stdout)
	for path := range strings.FieldsSeq(r.stdout) {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Contains(t, string(content), ">a: hitline</text>")
		assert.Contains(t, string(content), ">after: hitline</text>")
	}
}

func TestPictureUsage(t *testing.T) {
	dir := t.TempDir()
	report, bad := filepath.Join(dir, "a.json"), filepath.Join(dir, "bad.json")
	require.NoError(t, os.WriteFile(report, []byte(capacities), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte("{"), 0o600))
	for want, args := range map[string][]string{
		"give a kind: capacity, cost, ":                           {"--from", report, "--out", "x"},
		`required flag(s) "from" not set`:                         {"capacity", "--out", "x"},
		`required flag(s) "out" not set`:                          {"capacity", "--from", report},
		"--out \"x/\" names no picture":                           {"capacity", "--from", report, "--out", "x/"},
		"--from: open /no/such.json: no such file":                {"capacity", "--from", "/no/such.json", "--out", "x"},
		`unknown kind "pie"; one of `:                             {"pie", "--from", report, "--out", "x"},
		"bad input: bad: not a report: unexpected EOF":            {"capacity", "--from", bad, "--out", "x"},
		"bad input: a has no windows with requests; take what hi": {"replay", "--from", report, "--out", "x"},
	} {
		r := runWith(t.Context(), &fakeServer{}, nil, append([]string{"picture"}, args...)...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, "hitbench: ")
		assert.Contains(t, r.stderr, want)
		assert.Equal(t, 1, strings.Count(withoutHint(r.stderr), "\n"), "one line: %q", r.stderr)
		assert.Empty(t, r.stdout)
	}
	r := runWith(t.Context(), &fakeServer{}, nil, "picture", "capacity", "--from", report, "--out", filepath.Join(report, "x"))
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, "cannot make the directory of the pictures: ")
}
