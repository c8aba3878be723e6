package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/api"
)

// fleetPrompt returns token ids as --tokens-file takes them, and the hashes of their whole blocks of 16.
func fleetPrompt(t *testing.T, tokens int) (ids string, hashes [][]byte) {
	t.Helper()
	for i := range tokens {
		ids += fmt.Sprintln(i % 7)
	}
	got := hitline(t, ids, "hash")
	require.Equal(t, exitDone, got.code, got.stderr)
	for line := range strings.FieldsSeq(got.stdout) {
		hash, err := hex.DecodeString(line)
		require.NoError(t, err)
		hashes = append(hashes, hash)
	}
	return ids, hashes
}

// fleetConfig is a server with a fleet of two engines, one of them with two ranks.
func fleetConfig(engines ...*eventstest.Publisher) string {
	sources := ""
	for i, p := range engines {
		sources += fmt.Sprintf("    - {name: s%d, instance: engine-%d, rank: %d, connect: \"%s\", replay: \"%s\"}\n", i, i/2, i%2, p.Endpoint, p.Replay)
	}
	return "metrics: 127.0.0.1:0\npool: {vllm: 0.33.0}\nfleet:\n  listen: 127.0.0.1:0\n  models: [{name: llama, hash: {engine: vllm}}]\n  sources:\n" + sources
}

// Engines fill holders by their events. The command, HTTP, metrics and the status page say who has what, and what the
// pool can load.
func TestServeFleet(t *testing.T) {
	engines := []*eventstest.Publisher{eventstest.New(t), eventstest.New(t), eventstest.New(t)}
	ids, hashes := fleetPrompt(t, 16*8+5)
	require.Len(t, hashes, 8)
	engines[0].Publish(false, eventstest.Stored(nil, hashes[:2]...))
	engines[1].Publish(false, eventstest.Stored(nil, hashes[:3]...))
	engines[2].Publish(false, eventstest.Stored(nil, hashes...), eventstest.Removed(hashes[6]))
	s := startServe(t, fleetConfig(engines...))
	require.NotEmpty(t, s.fleet)

	ask := func(args ...string) result {
		return hitline(t, ids, append([]string{"holders", "--connect", s.address, "--tokens-file", "-"}, args...)...)
	}
	const want = `instance  rank  tokens  GPU
engine-1  0     96      96
engine-0  1     48      48
engine-0  0     32      32
`
	storetest.Eventually(t, "all events are applied", func() bool { return ask().stdout == want })
	assert.Equal(t, result{exitDone, want, ""}, hitline(t, hexKeys(hashes), "holders", "--connect", s.address, "--hashes-file", "-", "--model", "llama", "--tenant", "default"))
	assert.Equal(t, strings.Join(strings.SplitAfter(want, "\n")[:2], "")+"and 2 more\n", ask("--limit", "1").stdout)
	assert.Equal(t, "instance  rank  tokens  GPU\nengine-0  1     48      48\nengine-0  0     32      32\n", ask("--instance", "engine-0").stdout)
	assert.Equal(t, "no engine has the first block, of 16 tokens\n", ask("--salt", "x").stdout)

	// The pool has four blocks of the prompt. The last token is computed by an engine in any case.
	stored := hitline(t, hexKeys(hashes[:4]), "store", "--connect", s.address, "--hashes-file", "-")
	require.Equal(t, exitDone, stored.code, stored.stderr)
	assert.Equal(t, want+"the store can load 64 tokens\n", ask("--loadable").stdout)
	var answer api.HoldersAnswer
	require.NoError(t, json.Unmarshal([]byte(ask("--loadable", "--json").stdout), &answer))
	assert.Equal(t, api.HoldersAnswer{BlockSize: 16, LoadableTokens: new(int64(64)), Holders: []api.Holder{
		{Instance: "engine-1", Tokens: 96, Media: map[string]int64{"GPU": 96}}, {Instance: "engine-0", Rank: 1, Tokens: 48, Media: map[string]int64{"GPU": 48}},
		{Instance: "engine-0", Tokens: 32, Media: map[string]int64{"GPU": 32}},
	}}, answer)

	face := &metricsServer{metrics: s.fleet}
	const asJSON = "Content-Type: application/json"
	code, reply := face.send(t, "POST", "/query", `{"model": "llama", "block_size": 16, "token_ids": [`+strings.Join(strings.Fields(ids), ",")+`]}`, asJSON)
	assert.Equal(t, 200, code, reply)
	assert.JSONEq(t, `{"default": {"engine-0": {"longest_matched": 48, "GPU": 48, "CPU": 0, "DISK": 0, "DP": {"0": 32, "1": 48}},
		"engine-1": {"longest_matched": 96, "GPU": 96, "CPU": 0, "DISK": 0, "DP": {"0": 96}}}}`, reply)
	code, reply = face.get(t, "GET", "/ready")
	assert.Equal(t, 200, code, reply)
	code, _ = face.send(t, "POST", "/query", `{}`, asJSON, "Origin: http://evil.example")
	assert.Equal(t, 403, code)

	o := &metricsServer{address: s.address, metrics: s.metrics}
	_, body := o.get(t, "GET", "/metrics")
	for _, line := range []string{
		`hitline_events_blocks{source="s2"} 7`, `hitline_fleet_holders{model="llama",tenant="default"} 3`, `hitline_fleet_stale_holders{model="llama",tenant="default"} 0`,
		`hitline_fleet_source_info{endpoint="` + engines[1].Endpoint + `",instance_name="engine-0",model="llama",rank="1",source="s1",tenant="default"} 1`,
		`hitline_fleet_http_requests_total{code="200",path="/query"} 1`, `hitline_fleet_http_request_duration_seconds_count{path="/ready"} 1`,
	} {
		assert.Contains(t, body, "\n"+line+"\n")
	}
	_, body = o.get(t, "GET", "/status")
	assert.Contains(t, body, `"fleet":{"models":[{"name":"llama","tenant":"default","configured":true,"block_size":16,"pool":"","holders":3,"stale_holders":0,`)
	assert.Contains(t, s.log.String(), `"msg":"KV events fill a holder","source":"s0"`)

	engines[2].Publish(false, eventstest.Cleared())
	storetest.Eventually(t, "an engine has cleared its cache", func() bool { return !strings.Contains(ask().stdout, "engine-1") })
}

// What the command is refused for exits with 1, wrong block sizes with 2.
func TestHoldersRefused(t *testing.T) {
	s := startServe(t, "fleet: {models: [{name: a, block_size: 64}, {name: b, block_size: 16}, c]}\n")
	hash := strings.Repeat("ab", 32) + "\n"
	for _, test := range []struct {
		line, want string
		code       int
	}{
		{"--hashes-file -", "several", exitFailed},
		{"--hashes-file - --model d", "there is no such model", exitFailed},
		{"--hashes-file - --model a --tenant t", "there is no such model", exitFailed},
		{"--hashes-file - --model c", "block size of the model is not known", exitFailed},
		{"--hashes-file - --model a --loadable", "no pool", exitFailed},
		{"--tokens-file /dev/null --model a --block-size 16", "--block-size is 16, and the blocks of the model have 64 tokens", exitUsage},
	} {
		got := hitline(t, hash, append([]string{"holders", "--connect", s.address}, strings.Fields(test.line)...)...)
		assert.Equal(t, test.code, got.code, "%s: %s", test.line, got.stderr)
		assert.Empty(t, got.stdout, test.line)
		assert.Contains(t, got.stderr, test.want, test.line)
	}
	got := hitline(t, "abcd\n", "holders", "--connect", s.address, "--hashes-file", "-", "--model", "a")
	assert.Equal(t, exitFailed, got.code, got.stderr)
	got = hitline(t, "", "holders", "--connect", s.address, "--hashes-file", "-", "--model", "a")
	assert.Equal(t, result{exitDone, "no engine has the first block, of 64 tokens\n", ""}, got)

	s = startServe(t, "")
	got = hitline(t, hash, "holders", "--connect", s.address, "--hashes-file", "-")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "keeps no holders: configure fleet")
}
