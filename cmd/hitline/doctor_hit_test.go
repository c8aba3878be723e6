package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// TestDoctorHit compares the hit that doctor reports with what serve answers.
func TestDoctorHit(t *testing.T) {
	server := storetest.StartRedis(t)
	client := server.Client(t)
	chain := hexHashes("h", promptLen, 32)
	put := func(name string, rank, group int, hashes ...string) {
		for _, hash := range hashes {
			require.NoError(t, client.Set(t.Context(), fmt.Sprintf("%s@tp_rank:%d@pcp0@dcp0@pp_rank:0@group:%d@%s", name, rank, group, hash), "", 0).Err())
		}
	}
	for rank := range 2 {
		put("all", rank, 0, chain...)
		put("gap", rank, 0, append(chain[:20:20], chain[21:]...)...)
		put("lost", rank, 0, chain[:30-10*rank]...)
		put("window", rank, 0, chain...)
		put("window", rank, 1, append(chain[:38:38], chain[39])...)
	}
	for name, test := range map[string]struct {
		pool   string
		tokens int
		hit    int
		note   string // about the prompt
	}{
		"all":                {"model_name: all", 640, 640, ""},
		"one left":           {"model_name: all, vllm: 0.28.0", 640, 624, ""},
		"unaligned":          {"model_name: all, vllm: 0.28.0", 630, 624, ""},
		"unaligned, refused": {"model_name: all", 630, 624, "prompts of 630 tokens are refused for vLLM 0.24.0, which asks for multiples of 16: an engine of vLLM 0.27 or newer needs its release in pool.vllm"},
		"a block":            {"model_name: gap", 640, 320, ""},
		"a block on a rank":  {"model_name: lost", 640, 320, ""},
		"draft model":        {"model_name: all, use_eagle: true", 640, 624, ""},
		"window":             {"model_name: window, groups: [" + full16 + ", " + window32 + "]", 640, 608, ""},
		"less than a block":  {"model_name: all, vllm: 0.28.0", 10, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := "pool: {tp_size: 2, " + test.pool + "}\nbackend: {redis: {url: 'redis://" + server.Addr + "', timeout: 20s}}\n"
			tokens := fmt.Sprint(test.tokens)
			d := runDoctor(t, config, "--tokens", tokens, "--hashes-file", configFile(t, strings.Join(chain, "\n")))
			assert.Empty(t, d.Problems)
			if test.note != "" {
				assert.Contains(t, d.Notes, test.note)
			}
			require.NotNil(t, d.Prompt)
			assert.Equal(t, test.hit, int(d.Prompt.HitTokens))

			s := startServe(t, config)
			lookupTokens := fmt.Sprint(d.Prompt.Tokens)
			answer := hitline(t, strings.Join(chain, "\n"), "lookup", "--connect", s.address, "--tokens", lookupTokens, "--hashes-file", "-", "--explain", "--json")
			var want map[string]any
			require.NoError(t, json.Unmarshal([]byte(answer.stdout), &want), answer.stderr)
			delete(want, "account") // the server's
			text, err := json.Marshal(d.Prompt)
			require.NoError(t, err)
			want["tokens"] = d.Prompt.Tokens
			wanted, err := json.Marshal(want)
			require.NoError(t, err)
			assert.JSONEq(t, string(wanted), string(text), "as lookup --explain")
		})
	}
}

// Nothing of the prompt is stored.
func TestDoctorOfAnotherPrompt(t *testing.T) {
	server := storetest.StartRedis(t)
	client := server.Client(t)
	for _, hash := range hexHashes("h", promptLen, 32) {
		require.NoError(t, client.Set(t.Context(), "m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@"+hash, "", 0).Err())
	}
	file := configFile(t, strings.Join(hexHashes("other", promptLen, 32), "\n"))
	d := runDoctor(t, "pool: {model_name: m}\nbackend: {redis: {url: 'redis://"+server.Addr+"', timeout: 20s}}\n", "--tokens", "640", "--hashes-file", file)
	assert.Equal(t, exitDone, d.Exit, d.Problems)
	assert.Contains(t, d.Notes, "none of the prompt's blocks that lookups ask for is in the store: give one that an engine has stored. vLLM engines up to 0.28 find each other's blocks, and their own after a restart, only if all have the same PYTHONHASHSEED set, without which their first hash is random; from 0.29 on sha256 has a fixed default")
	require.NotNil(t, d.Prompt)
	assert.Zero(t, d.Prompt.HitTokens)

	// A block of any group counts as stored.
	require.NoError(t, client.Set(t.Context(), "w@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@"+hexHashes("other", 1, 32)[0], "", 0).Err())
	d = runDoctor(t, "pool: {model_name: w, groups: [{kind: sliding_window, block_size: 16, sliding_window: 32}]}\nbackend: {redis: {url: 'redis://"+server.Addr+"', timeout: 20s}}\n", "--tokens", "640", "--hashes-file", file)
	assert.NotContains(t, strings.Join(d.Notes, "\n"), "PYTHONHASHSEED")
}

// A prompt that cannot be looked up is a problem.
func TestDoctorCannotLookUp(t *testing.T) {
	server := storetest.StartRedis(t)
	for name, test := range map[string]struct {
		pool, tokens string
		hashes       int
		want         string
	}{
		"too few hashes": {"groups: [" + window32 + "]", "48", 1, "hashes 1 to 2 are missing"},
		"too many keys":  {"tp_size: 16384", "4800", 300, "bytes, at most 1073741824 are asked for: give a shorter one"},
	} {
		t.Run(name, func(t *testing.T) {
			file := configFile(t, strings.Join(hexHashes("h", test.hashes, 32), "\n"))
			d := runDoctor(t, "pool: {model_name: m, "+test.pool+"}\nbackend: {redis: {url: 'redis://"+server.Addr+"', timeout: 20s}}\n", "--tokens", test.tokens, "--hashes-file", file)
			require.Len(t, d.Problems, 1)
			assert.Contains(t, d.Problems[0], "the prompt could not be looked up: ")
			assert.Contains(t, d.Problems[0], test.want)
			assert.Nil(t, d.Prompt)
		})
	}
}
