package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Sources get their defaults, and what is printed reads back to the same.
func TestEvents(t *testing.T) {
	c := load(t, `
metrics: 127.0.0.1:1
pools: {b: {}}
events:
  sources:
    - tcp://127.0.0.1:5557,replay=tcp://127.0.0.1:5558
    - {name: engine-1, bind: "tcp://*:5557", topic: kv, pool: b, media: [CPU, GPU], exact_copies: true, timeout: 3s}
  register: ["tcp://10.0.0.0/8:5557-5564"]
  max_payload: 1MiB
pool: {tp_size: 2}
`)
	want := Events{
		Sources: []EventSource{
			{Name: "tcp://127.0.0.1:5557", Connect: "tcp://127.0.0.1:5557", Replay: "tcp://127.0.0.1:5558", Media: []string{"GPU"}, Timeout: Duration(10 * time.Second)},
			{Name: "engine-1", Bind: "tcp://*:5557", Topic: "kv", Pool: "b", Media: []string{"CPU", "GPU"}, ExactCopies: true, Timeout: Duration(3 * time.Second)},
		},
		Register: []string{"tcp://10.0.0.0/8:5557-5564"}, MaxPayload: 1 << 20, MaxBlocks: 16 << 20,
	}
	assert.Equal(t, want, c.Events)
	text, err := c.YAML()
	require.NoError(t, err)
	assert.Equal(t, want, load(t, string(text)).Events, "%s", text)

	c, err = Load(Source{File: write(t, "events: {sources: [tcp://a:1]}\n"), Flags: Flags{Events: new("tcp://b:1")}})
	require.NoError(t, err)
	require.Len(t, c.Events.Sources, 1)
	assert.Equal(t, "tcp://b:1", c.Events.Sources[0].Name)
	_, err = Load(Source{Flags: Flags{Events: new("tcp://b:1,reply=tcp://b:2")}})
	assert.EqualError(t, err, `--events: "tcp://b:1,reply=tcp://b:2": write tcp://host:port or tcp://host:port,replay=tcp://host:port`)
	_, err = Load(Source{Flags: Flags{Events: new("b:1")}})
	assert.EqualError(t, err, `--events: events.sources[0].connect: "b:1" is no endpoint; write tcp://host:port or ipc:///path`)
}

func TestEventsErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`events: {sources: [{}]}`, `c.yaml:1:20: events.sources[0].connect: is missing; give the publisher's endpoint, such as tcp://127.0.0.1:5557, or bind`},
		{`events: {sources: [{connect: "tcp://a:1", bind: "tcp://b:1"}]}`, `c.yaml:1:49: events.sources[0].bind: a source connects or binds, not both; remove connect or bind`},
		{`events: {sources: [{connect: "tcp://*:1"}]}`, `c.yaml:1:30: events.sources[0].connect: "tcp://*:1" has no host; for all interfaces write 0.0.0.0 or [::]`},
		{`events: {sources: [{connect: "tls://a:1"}]}`, `c.yaml:1:30: events.sources[0].connect: "tls://a:1" is no endpoint; write tcp://host:port or ipc:///path`},
		{`events: {sources: [{connect: "tcp://a:0"}]}`, `c.yaml:1:30: events.sources[0].connect: "tcp://a:0" has port 0; give the port of the publisher`},
		{`events: {sources: [{connect: "tcp://a:1", replay: "tcp://a"}]}`, `c.yaml:1:51: events.sources[0].replay: "tcp://a": missing port in address; write tcp://host:port, an IPv6 address in brackets`},
		{`events: {sources: [{connect: "tcp://a:1", name: a b}]}`, `c.yaml:1:49: events.sources[0].name: the name of a source is 1 to 255 printable ASCII characters without spaces and double quotes`},
		{`events: {sources: [{connect: "tcp://a:1", pool: b}]}`, `c.yaml:1:49: events.sources[0].pool: there is no pool "b"; configure it under pools`},
		{`events: {sources: [{connect: "tcp://a:1", media: [cpu]}]}`, `c.yaml:1:43: events.sources[0].media: unknown medium "cpu"; known are GPU, CPU, STORAGE, CPU_PINNED, DISK, EXTERNAL`},
		{`events: {sources: [{connect: "tcp://a:1", timeout: 1ms}]}`, `c.yaml:1:52: events.sources[0].timeout: 1ms is not 100ms to 1h0m0s`},
		{`events: {sources: ["tcp://a:1", "tcp://a:2"]}`, `c.yaml:1:33: events.sources[1].pool: the server's own pool has a source before it; a pool takes one, as it stands for one engine`},
		{"events: {sources: [{connect: \"tcp://a:1\"}, {connect: \"tcp://a:1\", pool: b}]}\npools: {b: {}}\npool: {tp_size: 1}", `c.yaml:1:44: events.sources[1].name: "tcp://a:1" is the name of a source before it`},
		{"events: {sources: [tcp://a:1]}\npools: {b: {}}", `c.yaml:1:20: events.sources[0].pool: the server has no pool of its own; name one of pools, or configure pool`},
		{"events: {sources: [tcp://a:1]}\nbackend: {redis: {url: redis://x}}", `c.yaml:1:1: events: events fill pools over the memory backend, and the backend is redis`},
		{`events: {register: ["tcp://a:1"]}`, `c.yaml:1:10: events.register: needs metrics, the address that it is served at, such as 127.0.0.1:9557`},
		{`events: {max_payload: 1KiB}`, `c.yaml:1:23: events.max_payload: 1024 is too small, must be at least 4096`},
		{`events: {max_blocks: 0}`, `c.yaml:1:22: events.max_blocks: 0 is too small, must be at least 1`},
	} {
		t.Run(test.text, func(t *testing.T) { assert.Equal(t, test.want, fails(t, test.text+"\n")) })
	}
}

// What changes in events is named: it needs a restart.
func TestEventsAreNotReloaded(t *testing.T) {
	c := load(t, "events: {sources: [tcp://a:1]}\n")
	merged, changed, left := c.Merge(load(t, "events: {sources: [tcp://a:2], max_blocks: 5}\n"))
	assert.Empty(t, changed)
	assert.Equal(t, []string{"events.sources", "events.max_blocks"}, left)
	assert.Equal(t, c.Events, merged.Events)
}

// A snapshot of a server that fills all its pools by events would be empty.
func TestEventsWarnings(t *testing.T) {
	const with = "backend: {memory: {snapshot: {path: x}}}\nevents: {sources: [tcp://a:1]}\n"
	warnings := load(t, with).SnapshotWarnings()
	if assert.Len(t, warnings, 1) {
		assert.Contains(t, warnings[0], ":1:37: backend.memory.snapshot.path: has no effect: events fill every pool")
	}
	assert.Empty(t, load(t, with+"pool: {tp_size: 1}\npools: {b: {}}\n").SnapshotWarnings())
}
