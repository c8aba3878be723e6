package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/capacity"
)

func TestCapacity(t *testing.T) {
	r := runWith(t.Context(), &fakeServer{}, strings.NewReader(small), "capacity", "--trace", "-", "--max-entries", "2,3", "--json")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Empty(t, r.stderr, "no terminal, no bar")
	require.Equal(t, 1, strings.Count(r.stdout, "\n"))
	var got capacity.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.Equal(t, "stdin", got.Trace)
	assert.Equal(t, []int{3, 6, 512}, []int{got.Requests, int(got.Hashes), got.BlockSize})
	require.Len(t, got.Rows, 2)
	assert.Equal(t, []int64{3, 3, 3, 3}, []int64{got.Rows[1].Hitline, got.Rows[1].LRU, got.Rows[1].TailLRU, got.Rows[1].Belady})

	r = runWith(t.Context(), &fakeServer{}, nil, "capacity", "--trace", excerpt)
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "clairvoyant\n")
	assert.Regexp(t, `\n100,000 +4,144 +4,144 +4,144 +4,144\n`, r.stdout)
}

func TestCapacityWrongUsage(t *testing.T) {
	for _, args := range []string{
		"", "--trace=", "--trace /no/such/file", "--trace " + excerpt + " extra",
		"--trace " + excerpt + " --max-entries 0", "--trace " + excerpt + " --max-entries x", "--trace " + excerpt + " --max-entries 5,5",
	} {
		r := runWith(t.Context(), &fakeServer{}, nil, append([]string{"capacity"}, strings.Fields(args)...)...)
		assert.Equal(t, exitUsage, r.code, args)
		assert.Empty(t, r.stdout, args)
		assert.Equal(t, 1, strings.Count(withoutHint(r.stderr), "\n"), "%s: %q", args, r.stderr)
		assert.True(t, strings.HasPrefix(r.stderr, "hitbench: "), r.stderr)
	}
	t.Setenv("HITLINE_KERNEL", "none")
	r := runWith(t.Context(), &fakeServer{}, nil, "capacity", "--trace", excerpt)
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, "none")
}

func TestCapacityInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := runWith(ctx, &fakeServer{}, nil, "capacity", "--trace", excerpt)
	assert.Equal(t, exitBad, r.code)
	assert.Equal(t, "hitbench: interrupted\n", r.stderr)
	assert.Empty(t, r.stdout)
}
