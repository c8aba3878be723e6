package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
)

// The server is asked for its block size.
func TestReplayLearnsBlockSize(t *testing.T) {
	for name, test := range map[string]struct {
		pool   coordinator.Pool
		code   int
		stderr string
	}{
		"16":              {coordinator.Pool{HashBlockSize: 16}, exitDone, ""},
		"512":             {coordinator.Pool{HashBlockSize: 512}, exitDone, ""},
		"16 of vLLM 0.33": {coordinator.Pool{VLLM: coordinator.NewestRelease(), HashBlockSize: 16}, exitDone, ""},
		"24":              {coordinator.Pool{HashBlockSize: 24}, exitUsage, "a hash covers 24 tokens at the server; a trace needs a number that divides 512"},
		"two groups": {coordinator.Pool{HashBlockSize: 16, Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64},
		}}, exitUsage, "give one whose pool has one full-attention group"},
	} {
		t.Run(name, func(t *testing.T) {
			addr := serve(t, lookup.ServiceConfig{Pool: test.pool}).Addrs()[0]
			r := hitbench(t, "replay", "--connect", addr, "--trace", excerpt, "-n", "50", "--json")
			require.Equal(t, test.code, r.code, r.stderr)
			assert.Contains(t, r.stderr, test.stderr)
			if r.code == exitDone {
				got := report(t, r)
				assert.Equal(t, strings.Fields(name)[0], strconv.Itoa(got.BlockSize))
				assert.EqualValues(t, 50, got.Requests)
			}
			if strings.Contains(name, "vLLM") {
				r := hitbench(t, "run", "--connect", addr, "--entries", "100", "-n", "10")
				assert.Equal(t, exitDone, r.code, r.stderr)
			}
		})
	}
}
