package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/client"
)

// A lookup of a release with tail boundaries that is refused, and one over a store that fails, is a hit
// of 0. The commands say why, and fail. A miss is none of these.
func TestLookupSaysWhyItFailed(t *testing.T) {
	hash := strings.Repeat("ab", 32) + "\n"
	const pool = "pool: {model_name: m, vllm: \"0.29.0\", hash_block_size: 16"
	memory := startServe(t, pool+"}\n")
	short := startServe(t, pool+", hash_len: 8}\n")
	closed := storetest.FreeAddr(t)
	dead := startServe(t, pool+"}\nbackend: {redis: {url: redis://"+closed+", timeout: 20s}}\n")
	for _, c := range []struct {
		server *testServer
		why    string // in the error; "": there is none
	}{{memory, ""}, {short, "hash_len 32, the pool has 8"}, {dead, closed + ": connection refused"}} {
		for range 7 { // with the breaker open, too
			for _, line := range []string{"lookup", "lookup --json", "lookup --explain"} {
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

// A lookup and an explanation from a token on take what is before it for stored.
func TestLookupFrom(t *testing.T) {
	s := startServe(t, "pool: {model_name: m, vllm: \"0.28.0\", hash_block_size: 16, scheduler_block_size: 32}\n")
	var hashes []string
	for i := range 6 {
		hashes = append(hashes, strings.Repeat(fmt.Sprintf("a%d", i), 32))
	}
	ask := func(in []string, line ...string) result {
		return hitline(t, strings.Join(in, "\n"), append(line, "--hashes-file", "-", "--connect", s.address)...)
	}
	require.Equal(t, exitDone, ask(hashes[2:4], "store", "--group", "0").code)
	assert.Equal(t, "0\n", ask(hashes, "lookup", "--tokens", "97").stdout)
	assert.Equal(t, "64\n", ask(hashes[2:], "lookup", "--tokens", "97", "--from", "32").stdout)
	assert.JSONEq(t, `{"hit_tokens":64,"start_tokens":32,"num_tokens":97,"hashes":4}`, ask(hashes[2:], "lookup", "--json", "--tokens", "97", "--from", "32").stdout)
	explained := ask(hashes[2:], "lookup", "--explain", "--tokens", "97", "--from", "32").stdout
	assert.True(t, strings.HasPrefix(explained, "hit 64 tokens, looked up from 32 on\n"), explained)
	assert.Contains(t, ask(hashes, "lookup", "--tokens", "97", "--from", "32").stderr, "leave out the first 2\n")
	refused := ask(hashes[2:], "lookup", "--tokens", "97", "--from", "33")
	assert.Equal(t, exitFailed, refused.code)
	assert.Contains(t, refused.stderr, "start_token 33 is no multiple of 32, the pool's scheduler_block_size")
}

// Too few hashes for a block are a hit of 0, and a line says so.
func TestLookupOfTooFewHashes(t *testing.T) {
	s := startServe(t, "pool: {model_name: m, vllm: \"0.29.0\", hash_block_size: 16, groups: [{kind: full_attention, block_size: 64}]}\n")
	look := func(tokens string) result {
		return hitline(t, strings.Join(hexHashes("h", 3, 32), "\n"), "lookup", "--tokens", tokens, "--hashes-file", "-", "--connect", s.address)
	}
	assert.Equal(t, result{exitDone, "0\n", "hitline: a hit of 0, as the hashes end within the first block of group 0; --explain tells more\n"}, look("1000"))
	assert.Equal(t, result{exitDone, "0\n", ""}, look("5"), "its tokens do")
}

func TestFormatAccount(t *testing.T) {
	at := time.Date(2026, 11, 29, 14, 0, 0, 0, time.UTC)
	for want, a := range map[string]api.LostTokens{
		"tokens by place: pool 16": {Tokens: map[string]int64{"pool": 16}, RemembersSince: at},
		"tokens by place: new 16":  {Tokens: map[string]int64{"new": 16}},
		"tokens by place: new 16\nnew: nobody asked since 2026-11-29T14:00:00Z; what was asked for only before is forgotten": {
			Tokens: map[string]int64{"new": 16}, RemembersSince: at,
		},
		"tokens by place: evicted 16\nlost: evicted; block 2, last asked for at 2026-11-29T14:00:00Z": {
			Tokens: map[string]int64{"evicted": 16}, Place: "evicted", Block: 2, AskedAt: at,
		},
	} {
		assert.Equal(t, want, formatAccount(&a))
	}
}

// A hit of 0 that cannot be explained in time is no miss.
func TestLookupCannotTell(t *testing.T) {
	s := startServe(t, "pool: {model_name: m}\n")
	c, err := client.Dial(t.Context(), s.address)
	require.NoError(t, err)
	defer c.Close()
	asker := target{connect: s.address, timeout: time.Second}
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	require.ErrorContains(t, asker.checkMiss(late, c, 16, hashList{}), "a hit of 0, as the lookup failed: ")
}
