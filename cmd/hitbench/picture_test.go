package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPicture(t *testing.T) {
	dir := t.TempDir()
	from, out := filepath.Join(dir, "a.json"), filepath.Join(dir, "a.svg")
	row := `{"vllm":"0.32.0","row":"latency","ok":true,"rows":[{"measured":"arrivals","mode":"own"},{"measured":"blocked head","mode":"own"}]}`
	require.NoError(t, os.WriteFile(from, []byte(row), 0o600))
	r := runWith(t.Context(), &fakeServer{}, "picture", "streams", "--from", from, "--out", out)
	require.Equal(t, exitDone, r.code, r.stderr)
	drawn, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Contains(t, string(drawn), "vLLM 0.32.0")

	for want, args := range map[string][]string{
		"give a kind: ":                         {"--from", from, "--out", out},
		"--out is required":                     {"streams", "--from", from},
		"--from: open /no/such.json: ":          {"streams", "--from", "/no/such.json", "--out", out},
		out + ": bad input: no lines of JSON: ": {"streams", "--from", out, "--out", out},
	} {
		r := runWith(t.Context(), &fakeServer{}, append([]string{"picture"}, args...)...)
		assert.Equal(t, exitUsage, r.code, want)
		assert.Contains(t, r.stderr, want)
	}
	r = runWith(t.Context(), &fakeServer{}, "picture", "streams", "--from", from, "--out", filepath.Join(from, "x"))
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, "cannot write the picture: ")
}
