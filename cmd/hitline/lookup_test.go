package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/hitline/hitline/internal/storetest"
)

// A lookup of a release with tail boundaries that is refused, and one over a store that fails, is a hit
// of 0. The commands say why, and fail. A miss is none of these.
func TestLookupSaysWhyItFailed(t *testing.T) {
	hash := strings.Repeat("ab", 32) + "\n"
	const pool = "pool: {model_name: m, vllm: \"0.29.0\", hash_block_size: 16"
	memory := startServe(t, pool+"}\n")
	short := startServe(t, pool+", hash_len: 8}\n")
	closed := storetest.FreeAddr(t)
	dead := startServe(t, pool+"}\nbackend: {redis: {url: redis://"+closed+"}}\n")
	for _, c := range []struct {
		server *testServer
		why    string // in the error; "": there is none
	}{{memory, ""}, {short, "hash_len 32, the pool has 8"}, {dead, closed + ": connection refused"}} {
		for range 7 { // with the breaker open, too
			for _, line := range []string{"lookup", "lookup --json", "lookup --explain", "plan"} {
				got := hitline(t, hash, append(strings.Fields(line), "--tokens", "17", "--hashes-file", "-", "--connect", c.server.address)...)
				if c.why == "" {
					assert.Equal(t, exitDone, got.code, line)
					assert.Empty(t, got.stderr, line)
					continue
				}
				assert.Equal(t, exitFailed, got.code, line)
				assert.NotContains(t, got.stdout, "hit_tokens", line)
				assert.Contains(t, got.stderr, c.why, line)
				assert.Equal(t, 1, strings.Count(got.stderr, "\n"), "%s: %s", line, got.stderr)
			}
		}
	}
}
