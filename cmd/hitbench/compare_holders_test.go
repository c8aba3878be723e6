package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/hitline/hitline/bench/holders"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runHolders runs hitbench compare --holders on little.
func runHolders(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr, dial: dial}
	small := []string{"compare", "--holders", "3", "--hashes", "16", "--entries", "200", "--rounds", "2", "--duration", "0.002"}
	code := a.run(t.Context(), append(small, args...))
	return result{code, stdout.String(), stderr.String()}
}

func TestCompareHolders(t *testing.T) {
	r := runHolders(t, "--only", "fleet", "--json", "--queries", "4")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Empty(t, r.stderr)
	var got holders.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.Equal(t, 3, got.Holders)
	assert.Equal(t, []int{16}, got.Hashes)
	require.Len(t, got.Rows, 6)
	assert.Equal(t, 4, got.Rows[0].Queries)
	assert.EqualValues(t, 1, got.Setup.Seed)

	r = runHolders(t, "--only", "fleet")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "rivals       left out\n")
}

func TestCompareHoldersUsage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for text, args := range map[string][]string{
		"--only llm-d: missing: hitbench-llmd is neither": {"--only", "llm-d"},
		"--only redis: with --holders give fleet, dynamo": {"--only", "redis"},
		"--miss-at does not go with --holders":            {"--miss-at", "tail"},
		"--hitline does not go with --holders":            {"--hitline", "/bin/true"},
		"--tp needs --vllm":                               {"--tp", "8"},
		"--holders does not go with --vllm":               {"--vllm", "0.33.0"},
		"bad options: 0 holders; give":                    {"--holders", "0"},
		"bad options: 0 queries; give":                    {"--queries", "0"},
		"bad options: 7 hashes; give":                     {"--hashes", "7"},
	} {
		r := runHolders(t, args...)
		assert.Equal(t, exitUsage, r.code, text)
		assert.Contains(t, r.stderr, text)
		assert.Empty(t, r.stdout)
	}
	r := runHolders(t)
	assert.Equal(t, exitDone, r.code)
	assert.Contains(t, r.stderr, "hitbench-dynamo is neither beside this program nor on PATH; make rivals builds it")

	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr, dial: dial}
	assert.Equal(t, exitUsage, a.run(t.Context(), []string{"compare", "--queries", "1"}))
	assert.Contains(t, stderr.String(), "--queries needs --holders")
}
