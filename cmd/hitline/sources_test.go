package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/feed"
)

// hexKeys returns hashes as lines for the commands.
func hexKeys(hashes [][]byte) string {
	var lines strings.Builder
	for _, h := range hashes {
		for _, c := range h {
			lines.WriteString(string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15]))
		}
		lines.WriteString("\n")
	}
	return lines.String()
}

// hitTokens returns what a lookup of hashes finds.
func hitTokens(t *testing.T, address string, hashes [][]byte) int {
	t.Helper()
	got := hitline(t, hexKeys(hashes), "lookup", "--connect", address, "--tokens", strconv.Itoa(16*len(hashes)), "--hashes-file", "-", "--json")
	require.Equal(t, exitDone, got.code, got.stderr)
	var reply struct {
		Tokens int `json:"hit_tokens"`
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &reply), got.stdout)
	return reply.Tokens
}

// An engine fills the pool by its events: through a cut, a lost batch and a removal the pool has what the engine
// holds, and clients cannot change it.
func TestServeFollowsEvents(t *testing.T) {
	p := eventstest.New(t)
	a := eventKeys("a", 6)
	p.Publish(false, eventstest.Stored(nil, a[:3]...))
	s := startServe(t, "pool: {vllm: 0.24.0}\nmetrics: 127.0.0.1:0\nevents: {sources: [{name: engine-0, connect: \""+p.Endpoint+"\", replay: \""+p.Replay+"\"}]}\n")
	o := &metricsServer{address: s.address, metrics: s.metrics}
	eventually := func(what string, tokens int) {
		t.Helper()
		storetest.Eventually(t, what, func() bool { return hitTokens(t, s.address, a) == tokens })
	}
	eventually("what was said before", 48)
	p.Publish(false, eventstest.Stored(a[2], a[3:]...))
	eventually("what is said now", 96)
	p.Publish(true, eventstest.Removed(a[5]))
	p.Publish(false, eventstest.Removed(a[4]))
	eventually("a gap is filled", 64)
	p.Cut()
	p.Publish(true, eventstest.Removed(a[3]))
	eventually("after a cut", 48)

	got := hitline(t, hexKeys(a), "store", "--connect", s.address, "--group", "0", "--hashes-file", "-")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "the pool is filled by the events of engine-0: clients cannot change it")
	code, body := o.get(t, "GET", "/events/sources")
	assert.Equal(t, 200, code)
	var list sourceList
	require.NoError(t, json.Unmarshal([]byte(body), &list), body)
	require.Len(t, list.Sources, 1)
	st := list.Sources[0]
	assert.Equal(t, "engine-0", st.Name)
	assert.Equal(t, p.Endpoint, st.Endpoint)
	assert.False(t, st.Registered)
	assert.True(t, st.Complete)
	assert.EqualValues(t, 3, st.Blocks)
	_, body = o.get(t, "GET", "/metrics")
	for _, line := range []string{
		`hitline_events_blocks{source="engine-0"} 3`, `hitline_events_complete{source="engine-0"} 1`, `hitline_events_stored_total{source="engine-0"} 6`,
		`hitline_events_removed_total{source="engine-0"} 3`, `hitline_events_source_info{endpoint="` + p.Endpoint + `",pool="",source="engine-0"} 1`,
	} {
		assert.Contains(t, body, "\n"+line+"\n")
	}
	_, body = o.get(t, "GET", "/status")
	assert.Contains(t, body, `"sources":[{"name":"engine-0"`)
	code, body = o.send(t, "POST", "/events/sources", "{}", "Content-Type: application/json")
	assert.Equal(t, 403, code)
	assert.Contains(t, body, "events.register is empty")
	assert.Contains(t, s.log.String(), `"msg":"KV events fill a pool","source":"engine-0"`)
}

// Sources are registered at allowed endpoints alone, and unregistered.
func TestRegisterSources(t *testing.T) {
	p := eventstest.New(t)
	a := eventKeys("a", 3)
	p.Publish(false, eventstest.Stored(nil, a...))
	o := startWithMetrics(t, "pool: {vllm: 0.24.0}\npools: {b: {vllm: 0.24.0}}\nevents: {register: [\"tcp://127.0.0.1:*\"]}\n")
	defer func() {
		o.stop()
		assert.Equal(t, exitDone, <-o.code)
	}()
	post := func(body string, headers ...string) (int, string) {
		t.Helper()
		return o.send(t, "POST", "/events/sources", body, append(headers, "Content-Type: application/json")...)
	}
	refused := func(want int, text, body string, headers ...string) {
		t.Helper()
		code, reply := post(body, headers...)
		assert.Equal(t, want, code, reply)
		assert.Contains(t, reply, text)
		assert.True(t, json.Valid([]byte(reply)), reply)
	}
	_, list := o.get(t, "GET", "/events/sources")
	assert.Equal(t, "{\"sources\":[]}\n", list)
	refused(403, "not on the list", `{"connect": "tcp://127.0.0.2:5557"}`)
	refused(403, "not on the list", `{"connect": "`+p.Endpoint+`", "replay": "tcp://10.0.0.1:1"}`)
	refused(404, "no such pool", `{"connect": "`+p.Endpoint+`", "pool": "c"}`)
	refused(400, "connect: is missing", `{}`)
	refused(400, "bind", `{"bind": "tcp://127.0.0.1:1"}`)
	refused(400, "unknown medium", `{"connect": "`+p.Endpoint+`", "media": ["RAM"]}`)
	refused(413, "larger than", `{"name": "`+strings.Repeat("a", maxSourceBody)+`"}`)
	refused(403, "another origin", `{"connect": "`+p.Endpoint+`"}`, "Origin: http://evil.example")
	refused(403, "not served for this host", `{"connect": "`+p.Endpoint+`"}`, "Host: evil.example")

	stored := hitline(t, hexKeys(a), "store", "--connect", o.address, "--group", "0", "--hashes-file", "-")
	require.Equal(t, exitDone, stored.code, stored.stderr)
	code, body := post(`{"name": "engine-1", "connect": "` + p.Endpoint + `", "replay": "` + p.Replay + `", "timeout": "3s"}`)
	require.Equal(t, 201, code, body)
	var st feed.SourceStatus
	require.NoError(t, json.Unmarshal([]byte(body), &st))
	assert.True(t, st.Registered)
	storetest.Eventually(t, "the pool is filled", func() bool { return hitTokens(t, o.address, a) == 48 })
	refused(409, "there is a source of this name", `{"name": "engine-1", "connect": "`+p.Endpoint+`", "pool": "b"}`)
	refused(409, "filled by the events of engine-1", `{"name": "engine-2", "connect": "`+p.Endpoint+`"}`)
	code, _ = o.send(t, "DELETE", "/events/sources/engine-2", "")
	assert.Equal(t, 404, code)
	code, _ = o.send(t, "DELETE", "/events/sources?name=engine-1", "")
	assert.Equal(t, 204, code)
	assert.Zero(t, hitTokens(t, o.address, a), "the pool is empty then")
	stored = hitline(t, hexKeys(a), "store", "--connect", o.address, "--group", "0", "--hashes-file", "-")
	assert.Equal(t, exitDone, stored.code, stored.stderr)
}

// Without events in the configuration the path says so.
func TestSourcesOff(t *testing.T) {
	o := startWithMetrics(t, "")
	defer func() {
		o.stop()
		assert.Equal(t, exitDone, <-o.code)
	}()
	code, body := o.get(t, "GET", "/events/sources")
	assert.Equal(t, 404, code)
	assert.Contains(t, body, "events has neither sources nor register")
}
