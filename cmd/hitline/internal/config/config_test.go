package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/conformance"
)

// write puts text into a file c.yaml and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// fails loads a file with text and returns the error with the directory cut off.
func fails(t *testing.T, text string) string {
	t.Helper()
	path := write(t, text)
	_, err := Load(Source{File: path})
	require.Error(t, err)
	message := err.Error()
	dir := filepath.Dir(path) + string(filepath.Separator)
	require.NotContains(t, message, "\n", "one line")
	return trim(message, dir)
}

func trim(message, dir string) string {
	if len(message) > len(dir) && message[:len(dir)] == dir {
		return message[len(dir):]
	}
	return message
}

func TestDefaults(t *testing.T) {
	c, err := Load(Source{})
	require.NoError(t, err)
	want := Default()
	want.origins = origins{}
	rules, err := coordinator.New(coordinator.Pool{})
	require.NoError(t, err)
	want.Pool = rules.Pool()
	assert.Equal(t, &want, c)
	assert.Equal(t, []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 16}}, c.Pool.Groups)

	empty, err := Load(Source{File: write(t, "# nothing\n")})
	require.NoError(t, err)
	assert.Equal(t, c, empty)
	sections, err := Load(Source{File: write(t, "pool:\nbackend:\n  memory:\nlimits:\nlog:\n")})
	require.NoError(t, err)
	sections.origins, sections.written = c.origins, c.written
	assert.Equal(t, c, sections, "sections whose fields are all left out")
	derived, err := Load(Source{File: write(t, "pool: {scheduler_block_size: 0, num_kv_head: 0}\n")})
	require.NoError(t, err)
	assert.Equal(t, c.Pool, derived.Pool)
}

func TestFile(t *testing.T) {
	c, err := Load(Source{File: write(t, `
listen: [tcp://127.0.0.1:7557, "tcp://[::1]:0", ipc:///run/hitline.sock]
ipc_mode: "0660"
loops: 3
pool:
  model_name: 0123            # a name, whatever it looks like
  cache_prefix: "a: b"
  hash_block_size: 16
  scheduler_block_size: 64
  use_eagle: true
  retention_interval: 0
  tp_size: 8
  num_kv_head: 1
  groups:
    - {kind: full_attention, block_size: 32}
    - kind: sliding_window
      block_size: 16
      sliding_window: 1024
      is_eagle_group: True
backend:
  memory: {max_bytes: 2GiB, max_entries: 1000000}
limits: {max_message: 1MB, max_memory: "512MiB", handshake_timeout: 1m30s, idle_timeout: 5m}
drain_timeout: 0s
log:
  level: warn
  format: json
`)})
	require.NoError(t, err)
	assert.Equal(t, Listeners("tcp://127.0.0.1:7557", "tcp://[::1]:0", "ipc:///run/hitline.sock"), c.Listen)
	assert.Equal(t, Mode(0o660), c.IPCMode)
	assert.Equal(t, 3, c.Loops)
	zero := 0
	assert.Equal(t, coordinator.Pool{
		ModelName: "0123", CachePrefix: "a: b", HashBlockSize: 16, SchedulerBlockSize: 64,
		UseEagle: true, RetentionInterval: &zero,
		TPSize: 8, PPSize: 1, PCPSize: 1, DCPSize: 1, NumKVHead: 1,
		Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 32},
			{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 1024, IsEagleGroup: true},
		},
	}, c.Pool)
	assert.Equal(t, Memory{MaxBytes: 2 << 30, MaxEntries: 1_000_000}, c.Backend.Memory)
	want := Default().Limits
	want.MaxMessage, want.MaxMemory = 1_000_000, 512<<20
	want.HandshakeTimeout, want.IdleTimeout = 90e9, 300e9
	assert.Equal(t, want, c.Limits)
	assert.Zero(t, c.DrainTimeout)
	assert.Equal(t, Log{Level: "warn", Format: "json"}, c.Log)
}

func TestFileCannotBeRead(t *testing.T) {
	_, err := Load(Source{File: "no/such.yaml"})
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Contains(t, err.Error(), "cannot read the configuration: open no/such.yaml")
}

// Every mistake has an origin and says what to do.
func TestFileErrors(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"tab", "pool:\n\ttp_size: 1\n", `c.yaml:2:1: a tab; write spaces, as tabs cannot indent`},
		{"indented deeper", "loops: 1\n  metrics: a\n", `c.yaml:1:8: indented deeper than the line before, which has a value; align it`},
		{"no space after the colon", "pool:\n  tp_size:8\n", `c.yaml:2:3: pool: "tp_size:8" where fields are expected; write name: value, with a space after the colon`},
		{"no colon", "pool:\n  tp_size 8\n  pp_size: 1\n", `c.yaml:2:3: neither a field nor a value; write name: value, with a space after the colon`},
		{"open braces", "pool: {tp_size: 1\n", `c.yaml:1:7: fields in braces are not complete; separate them by commas, and close them with }`},
		{"open quotes", "metrics: \"127\n", `c.yaml:1:10: a text in quotes has no end; close the quotes`},
		{"at sign", "metrics: @a\n", `c.yaml:1:10: a text cannot begin with @; put it in quotes`},
		{"control characters", "metrics: \"a\\e[31m:1\"\n", `c.yaml:1:10: metrics: "a\x1b[31m:1": unexpected '[' in address; write host:port, an IPv6 address in brackets`},
		{"another field's name", "pool: {block_size: 16}\n", `c.yaml:1:8: pool.block_size: unknown field; did you mean hash_block_size?`},
		{"duration without number", "drain_timeout: s\n", `c.yaml:1:16: drain_timeout: "s" is not a duration; write seconds, such as 10, or 100ms, 1m30s or 2h`},
		{"open list", "listen: [tcp://a:1\n", `c.yaml:1:9: a list in brackets is not complete; close it with ]`},
		{"two documents", "loops: 1\n---\nloops: 2\n", `c.yaml:3:1: a second document; only one is read, merge them`},
		{"not fields", "- a\n", `c.yaml:1:1: a list where fields are expected: listen, ipc_mode, loops, pool, pools, accept_pools, max_pools, backend, router, limits, drain_delay, drain_timeout, metrics, pprof, http_hosts, log`},
		{"anchor", "loops: &x 1\n", `c.yaml:1:8: loops: anchors, aliases and tags are not read here; write the value out`},
		{"merge key", "pool:\n  <<: {tp_size: 1}\n", `c.yaml:2:3: pool: merge keys are not read here; write the fields out`},
		{"number as key", "1: 2\n", `c.yaml:1:1: 1 is not the name of a field`},
		{"carriage returns", "loops: 1 # c\r\nloop: 2\r\n", `c.yaml:2:1: loop: unknown field; did you mean loops?`},
		{"byte order mark", "\ufeffloop: 2\n", `c.yaml:1:1: loop: unknown field; did you mean loops?`},

		{"unknown", "pool:\n  tp_size: 1\n  tp_sise: 2\n", `c.yaml:3:3: pool.tp_sise: unknown field; did you mean tp_size?`},
		{"unknown, nothing near", "log:\n  colour: red\n", `c.yaml:2:3: log.colour: unknown field; known are level, format`},
		{"unknown of many", "pools:\n  a: {blok: 1}\n", `c.yaml:2:7: pools.a.blok: unknown field; docs/configuration.md lists those that are known`},
		{"first unknown is told", "log: {zz: 1, yy: 2, xx: 3}\n", `c.yaml:1:7: log.zz: unknown field; known are level, format`},
		{"duplicate", "loops: 1\nloops: 2\n", `c.yaml:2:1: field loops is there twice, the first at 1:1; remove one`},
		{"duplicate, escaped", "loops: 1\n\"l\\x6fops\": 2\n", `c.yaml:2:1: field loops is there twice, the first at 1:1; remove one`},
		{"duplicate in a flow", "log: {level: info, level: warn}\n", `c.yaml:1:20: field level is there twice, the first at 1:7; remove one`},

		{"word for a number", "loops: two\n", `c.yaml:1:8: loops: "two" is not a whole number in decimal`},
		{"string for a number", "loops: \"2\"\n", `c.yaml:1:8: loops: "2" is a string, must be a whole number without quotes`},
		{"octal", "loops: 010\n", `c.yaml:1:8: loops: "010" is not a whole number in decimal`},
		{"underscore", "loops: 1_0\n", `c.yaml:1:8: loops: "1_0" is not a whole number in decimal`},
		{"huge", "loops: 99999999999999999999\n", `c.yaml:1:8: loops: 99999999999999999999 is out of range`},
		{"nothing", "loops:\n", `c.yaml:1:8: loops: has no value; leave the field out for its default`},
		{"list for a number", "loops: [1]\n", `c.yaml:1:8: loops: a list where a single value is expected`},
		{"fields for a number", "loops:\n  n: 1\n", `c.yaml:2:3: loops: fields where a single value is expected`},
		{"word for fields", "log: debug\n", `c.yaml:1:6: log: "debug" where fields are expected: level, format`},
		{"word for a list", "listen: tcp://a:1\n", `c.yaml:1:9: listen: "tcp://a:1" where a list is expected; write it in brackets`},

		{"size", "backend:\n  memory:\n    max_bytes: 1 gig\n", `c.yaml:3:16: backend.memory.max_bytes: "1 gig" is not a number of bytes such as 67108864, 64MiB or 64MB (KiB, MiB, GiB, TiB; KB, MB, GB)`},
		{"mode", "ipc_mode: 0770\n", `c.yaml:1:11: ipc_mode: "0770" is not the permissions of a socket, in octal from 0600 to 0666 without the bits for executing`},
		{"level", "log:\n  level: trace\n", `c.yaml:2:10: log.level: "trace" is not one of debug, info, warn, error`},

		{"negative loops", "loops: -1\n", `c.yaml:1:8: loops: -1 is too small, must be at least 0`},
		{"max_message 0", "limits:\n  max_message: 0\n", `c.yaml:2:16: limits.max_message: 0 is too small, must be at least 1`},
		{"message_timeout 0", "limits:\n  message_timeout: 0\n", `c.yaml:2:20: limits.message_timeout: 0s is too small, must be at least 1ms`},

		{"a backend as a word", "backend: mooncake\n", `c.yaml:1:10: backend: "mooncake" where fields are expected; write {mooncake: {masters: …}}`},
		{"redis", "backend:\n  redis: {pool_size: 3}\n", `c.yaml:2:3: backend.redis.url: is missing; give the server's, such as redis://127.0.0.1:6379, here or in HITLINE_BACKEND_REDIS_URL`},
		{"redis as a word", "backend:\n  redis: redis://:secret@x\n", `c.yaml:2:10: backend.redis: "redis://:***@x" where fields are expected: url, ttl, pool_size, timeout, blocks`},
		{"mooncake", "backend:\n  mooncake:\n", `c.yaml:2:13: backend.mooncake.masters: is missing; give the RPC addresses of the masters, such as [127.0.0.1:50051], here or with commas between them in HITLINE_BACKEND_MOONCAKE_MASTERS; or name Mooncake's own file by MOONCAKE_CONFIG_PATH`},
		{"one master as a word", "backend:\n  mooncake: {masters: a:1}\n", `c.yaml:2:23: backend.mooncake.masters: "a:1" where a list is expected; write it in brackets`},
		{"a master with a space", "backend: {mooncake: {masters: [a: 1]}}\n", `c.yaml:1:32: backend.mooncake.masters[0]: fields where a single value is expected`},
		{"a master as fields", "backend:\n  mooncake:\n    masters: [{a: 1}]\n", `c.yaml:3:15: backend.mooncake.masters[0]: fields where a single value is expected`},
		{"tenant", "backend:\n  mooncake: {masters: [a:1], tenant: ''}\n", `c.yaml:2:38: backend.mooncake.tenant: is empty; leave it out for default`},
		{"unknown backend", "backend: {etcd: {}}\n", `c.yaml:1:11: backend.etcd: unknown field; known are memory, redis, mooncake`},
		{"two backends", "backend:\n  memory: {}\n  redis: {}\n", `c.yaml:3:3: backend: both memory and redis; a process has one backend, remove the others`},
		{"metrics scheme", "loops: 1\nmetrics: http://127.0.0.1:9557\n", `c.yaml:2:10: metrics: "http://127.0.0.1:9557" has a scheme; write host:port, such as 127.0.0.1:9557`},
		{"pprof alone", "pprof: true\n", `c.yaml:1:8: pprof: needs metrics, the address that it is served at, such as 127.0.0.1:9557`},
		{"metrics port", "metrics: 127.0.0.1\n", `c.yaml:1:10: metrics: "127.0.0.1": missing port in address; write host:port, an IPv6 address in brackets`},
		{"metrics taken", "metrics: 127.0.0.1:7557\n", `c.yaml:1:10: metrics: "127.0.0.1:7557" is the address of listen[0], too; give each its own`},

		{"a release by its date", "pool: {vllm: 2026-06-20}\n", `c.yaml:1:14: pool.vllm: unknown vLLM release "2026-06-20", known are ` + strings.Join(coordinator.Releases(), ", ") + `; write the one of which the engine's vLLM is a build, or upgrade hitline`},
		{"cross attention", "pool:\n  groups:\n    - kind: cross_attention\n      block_size: 16\n", `c.yaml:3:13: pool.groups[0].kind: kind cross_attention has no prefix-cache rule in the reference, leave its group out of the pool`},
		{"hash block of 0", "pool: {hash_block_size: 0}\n", `c.yaml:1:25: pool.hash_block_size: is 0; give 1 or more, or leave it out for its default`},
		{"ranks of 0", "pools: {a: {tp_size: 0}}\n", `c.yaml:1:22: pools.a.tp_size: is 0; give 1 or more, or leave it out for its default`},
		{"unknown kind", "pool:\n  groups: [{kind: full}]\n", `c.yaml:2:19: pool.groups[0].kind: unknown kind "full", want one of full_attention, mla_attention, sink_full_attention, rswa, hidden_state, sliding_window, sliding_window_mla, chunked_local_attention, mamba, circular_buffer, kpool_tail, hisparse_hot, hisparse_resident`},
		{"scheduler block", "pool:\n  scheduler_block_size: 24\n", `c.yaml:2:25: pool.scheduler_block_size: scheduler_block_size 24 is not a multiple of hash_block_size 16`},
		{"group without window", "pool:\n  groups:\n    - {kind: full_attention, block_size: 16}\n    - {kind: sliding_window, block_size: 16}\n", `c.yaml:4:7: pool.groups[1]: sliding_window needs sliding_window`},
	} {
		t.Run(test.name, func(t *testing.T) { assert.Equal(t, test.want, fails(t, test.text)) })
	}
}

func TestListenErrors(t *testing.T) {
	for _, test := range []struct{ list, want string }{
		{`[]`, `c.yaml:1:1: listen: no address; give one such as tcp://127.0.0.1:7557`},
		{`["tcp://a:1", "a:1"]`, `c.yaml:1:23: listen[1]: "a:1" is the address of listen[0], too; give each its own`},
		{`["/run/x"]`, `c.yaml:1:10: listen[0]: "/run/x" has no scheme; write ipc:///path for a unix socket`},
		{`["ipc://run/x"]`, `c.yaml:1:10: listen[0]: "ipc://run/x": not the absolute path of a socket; write ipc:///path`},
		{`["ipc://@x"]`, `c.yaml:1:10: listen[0]: "ipc://@x": not the absolute path of a socket; write ipc:///path`},
		{`["ipc:///run/a", "ipc:///run//a"]`, `c.yaml:1:26: listen[1]: "ipc:///run//a" is the address of listen[0], too; give each its own`},
		{`["udp://a:1"]`, `c.yaml:1:10: listen[0]: "udp://a:1": unknown scheme "udp"; use tcp://host:port, tls://host:port or ipc:///path`},
		{`["tcp://a"]`, `c.yaml:1:10: listen[0]: "tcp://a": missing port in address; write tcp://host:port, an IPv6 address in brackets`},
		{`["tcp://:7557"]`, `c.yaml:1:10: listen[0]: "tcp://:7557" has no host; for all interfaces write 0.0.0.0, or [::] for IPv6, too`},
		{`["tcp://a b:1"]`, `c.yaml:1:10: listen[0]: "tcp://a b:1": "a b" is not a host name or an IP address`},
		{`["tcp://[::1]:1", "tcp://[0::1]:1"]`, `c.yaml:1:27: listen[1]: "tcp://[0::1]:1" is the address of listen[0], too; give each its own`},
		{`[tcp://a:1, [b]]`, `c.yaml:1:21: listen[1]: a list where fields are expected: address, allow, tokens, tls`},
	} {
		t.Run(test.list, func(t *testing.T) { assert.Equal(t, test.want, fails(t, "listen: "+test.list+"\n")) })
	}
}

// What is printed reads back to the same, whatever a string looks like.
func TestYAMLRoundTrip(t *testing.T) {
	seven := 7
	for _, name := range []string{
		"m", "", "null", "Null", "NULL", "~", "0123", "1e3", "true", "yes", "2026-06-20", "a: b", "a #b", " a ", "- a", "*a", "&a", "!a", "'", `"`, "{", "a\nb",
		"\\", "%", "@", "|", ">", "é", "a/b-c_d.e", "<<", "=", "a,b", "[x]", "\t", "\x00", "\u2028", "#", "?", ": ", "a:", "---", "...", "a\r\nb", "a\n\n", "\n",
	} {
		c, err := Load(Source{File: write(t, "loops: 2\nlog: {level: error}\n")})
		require.NoError(t, err)
		c.Pool.ModelName, c.Pool.CachePrefix, c.Pool.RetentionInterval = name, name, &seven
		c.Limits.MaxMessage, c.Limits.MaxMemory, c.Limits.IdleTimeout = 12345, 3<<40, 1
		text, err := c.YAML()
		require.NoError(t, err)
		back, err := Load(Source{File: write(t, string(text))})
		require.NoError(t, err, "%s", text)
		require.Equal(t, c.Accepts(), back.Accepts())
		back.origins, back.written, back.AcceptPools = c.origins, c.written, c.AcceptPools
		assert.Equal(t, c, back, "%s", text)
	}
}

func TestBlame(t *testing.T) {
	c, err := Load(Source{File: write(t, "backend:\n  memory:\n    max_bytes: 5\n")})
	require.NoError(t, err)
	c.origins["backend.memory.max_bytes"] = origin{name: "f", line: 3, column: 16}
	err = c.WithOrigin("backend.memory", os.ErrInvalid)
	require.ErrorIs(t, err, os.ErrInvalid)
	c.origins["backend.memory"] = origin{name: "f", line: 2, column: 3}
	assert.EqualError(t, c.WithOrigin("backend.memory", os.ErrInvalid), "f:2:3: backend.memory: invalid argument")
	assert.EqualError(t, c.WithOrigin("pool", os.ErrInvalid), "default: pool: invalid argument")
}

// maxFuzzed bounds a text: the parser takes time in proportion to the square of some.
const maxFuzzed = 4 << 10

// Whatever a file holds, it is read or refused. What is read can be written, and reads back.
func FuzzFile(f *testing.F) {
	f.Add("listen: [tcp://127.0.0.1:7557]\npool:\n  groups:\n    - {kind: mamba, block_size: 16}\n")
	f.Add("limits: {max_message: 1GiB}\n? a\n: b\n")
	f.Add("backend: {mooncake: {masters: [a:1, b:2:3]}}\n")
	f.Add("backend: {redis: {url: redis://h:1/0, ttl: 1s}}\n")
	f.Add("a: &x [*x]\n--- |\n  b\n")
	f.Add("pools: {qwen2.5: {model_name: \"a: b\", prefill_tp_sizes: [2]}}\nrouter: {models: [{name: m, block_size: 1}], listen: 127.0.0.1:1}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxFuzzed {
			return
		}
		c := Default()
		c.origins = origins{}
		if c.readFile("f.yaml", []byte(text)) != nil || c.validate() != nil {
			return
		}
		written, err := c.YAML()
		require.NoError(t, err)
		if bytes.HasPrefix(written, []byte(hidden)) {
			return
		}
		back := Default()
		back.origins = origins{}
		require.NoError(t, back.readFile("f.yaml", written), "%s", written)
		require.NoError(t, back.validate(), "%s", written)
		require.Equal(t, c.Limits, back.Limits)
	})
}

// A release of vLLM reads back.
func TestRelease(t *testing.T) {
	load := func(text string) (*Config, error) { return Load(Source{File: write(t, text)}) }
	for _, release := range []string{"0.24.0", "0.28.0", coordinator.NewestRelease()} {
		c, err := load("pool: {vllm: \"" + release + "\"}\n")
		require.NoError(t, err)
		require.Equal(t, release, c.Pool.VLLM)
		text, err := c.YAML()
		require.NoError(t, err)
		again, err := load(string(text))
		require.NoError(t, err, "%s", text)
		require.Equal(t, c.Pool, again.Pool)
	}
	_, err := load("pool: {vllm: \"" + conformance.UnknownRelease + "\"}\n")
	require.ErrorContains(t, err, `:1:14: pool.vllm: unknown vLLM release "`+conformance.UnknownRelease+`", known are 0.24.0, `)
	_, err = load("pool: {vllm: \"\"}\n")
	require.ErrorContains(t, err, ":1:14: pool.vllm: is empty")
	_, err = Load(Source{Environ: []string{"HITLINE_POOL_VLLM="}})
	require.ErrorContains(t, err, "HITLINE_POOL_VLLM: pool.vllm: is empty")
}
