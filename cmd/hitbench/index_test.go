package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func indexJSON(t *testing.T, args ...string) map[string]any {
	t.Helper()
	r := runWith(t.Context(), &fakeServer{}, strings.NewReader(small), append([]string{"index", "--json"}, args...)...)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, 1, strings.Count(r.stdout, "\n"), "one line: %q", r.stdout)
	got := map[string]any{"stderr": r.stderr}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	return got
}

func TestIndexSpeed(t *testing.T) {
	got := indexJSON(t, "--entries", "20000", "--passes", "1", "--hash-len", "32")
	for _, name := range []string{
		"chain_ns", "random_ns", "miss_ns", "gomap_chain_ns", "gomap_random_ns", "bytes_per_entry", "peak_bytes_per_entry",
		"stats_bytes_per_entry", "chain_ratio", "random_ratio", "miss_in_map_accesses", "setup",
	} {
		assert.Contains(t, got, name)
	}
	assert.EqualValues(t, 20000, got["entries"])
	assert.Empty(t, got["stderr"], "no terminal, no bar")

	got = indexJSON(t, "--entries", "1000", "--passes", "1", "--hash-len", "33")
	assert.Nil(t, got["gomap_chain_ns"])
	assert.Contains(t, got["stderr"], "no Go map is measured beside hashes of 33 bytes")
}

func TestIndexChurn(t *testing.T) {
	got := indexJSON(t, "--entries", "20000", "--passes", "1", "--churn", "--churn-phase", "10ms", "--churn-rate", "50000", "--lookup-rate", "1000", "--seed", "7")
	for _, name := range []string{"quiet", "churn", "p99_ratio", "max_ratio", "store_rate"} {
		assert.Contains(t, got, name)
	}
	assert.EqualValues(t, 1000, got["lookup_rate"])
	assert.EqualValues(t, 7, got["setup"].(map[string]any)["seed"])
}

func TestIndexTrace(t *testing.T) {
	got := indexJSON(t, "--trace", "-", "--passes", "2", "--capacities", "2,3")
	assert.Equal(t, "stdin", got["trace"])
	assert.EqualValues(t, 3*32, got["hit_hashes"])
	assert.Len(t, got["capacities"], 2)
	for _, name := range []string{"trace_ns_per_hit_hash", "gomap_trace_ns_per_hit_hash", "ratio"} {
		assert.Contains(t, got, name)
	}
}

func TestIndexTable(t *testing.T) {
	r := runWith(t.Context(), &fakeServer{}, nil, "index", "--entries", "1000", "--passes", "1")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "chain, ns a hash")
}

func TestIndexWrongUsage(t *testing.T) {
	for _, args := range []string{
		"--entries 0",
		"--entries 2000000000",
		"--entries many",
		"--hash-len 7",
		"--hash-len 65",
		"--passes 0",
		"--churn --entries 100",
		"--churn --churn-rate 0",
		"--churn --churn-phase 0s",
		"--churn-rate 5",
		"--lookup-rate 5",
		"--churn --lookup-rate 0",
		"--seed 0",
		"--churn-phase 1s",
		"--capacities 5",
		"--churn --trace " + excerpt,
		"--trace=",
		"--trace " + excerpt + " --entries 5",
		"--trace " + excerpt + " --hash-len 32",
		"--trace " + excerpt + " --seed 2",
		"--trace " + excerpt + " --capacities 0",
		"--trace " + excerpt + " --capacities x",
		"--trace " + excerpt + " --passes 0",
		"--trace /no/such/file",
		"extra",
	} {
		r := runWith(t.Context(), &fakeServer{}, nil, append([]string{"index"}, strings.Fields(args)...)...)
		assert.Equal(t, exitUsage, r.code, args)
		assert.Empty(t, r.stdout, args)
		assert.Equal(t, 1, strings.Count(withoutHint(r.stderr), "\n"), "%s: %q", args, r.stderr)
		assert.True(t, strings.HasPrefix(r.stderr, "hitbench: "), r.stderr)
	}
}

func TestIndexKernelFromEnvironment(t *testing.T) {
	t.Setenv("HITLINE_KERNEL", "none")
	r := runWith(t.Context(), &fakeServer{}, nil, "index")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, "none")
}

func TestIndexInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"index"}, {"index", "--churn"}, {"index", "--trace", excerpt}} {
		var stdout, stderr bytes.Buffer
		a := app{stdout: &stdout, stderr: &stderr}
		assert.Equal(t, exitBad, a.run(ctx, args))
		assert.Equal(t, "hitbench: interrupted\n", stderr.String())
		assert.Empty(t, stdout.String())
	}
}
