package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/router"
)

// A layout of SGLang's store has one address or several, and what is printed reads back to the same.
func TestHiCacheLayouts(t *testing.T) {
	for text, want := range map[string]URLs{
		`"http://a:1/x"`: {"http://a:1/x"}, `["http://a:1/x", "http://b:2/x"]`: {"http://a:1/x", "http://b:2/x"}, `""`: nil, `[]`: {},
	} {
		c := load(t, `
backend: {mooncake: {masters: ["a:1"]}}
router: {models: [{name: m, block_size: 64, hash: {type: sglang}, hicache_layout: `+text+`}]}
`)
		assert.Equal(t, want, c.Router.Models[0].HiCache, text)
		printed, err := c.YAML()
		require.NoError(t, err)
		assert.Len(t, load(t, string(printed)).Router.Models[0].HiCache, len(want), string(printed))
	}
}

// Models and sources get their defaults, and what is printed reads back to the same.
func TestRouter(t *testing.T) {
	c := load(t, `
pool: {vllm: 0.30.0, hash_block_size: 32}
pools: {b: {hash_block_size: 64}}
router:
  listen: 127.0.0.1:8557
  models:
    - llama
    - {name: llama, tenant_id: acme, pool: b, max_bytes: 64MiB, max_blocks: 5, predict_ttl: 1s}
    - name: org/qwen
      block_size: 24
      pool: "-"
      release: 0.29.0
      hash: {algorithm: xxhash, seed: 0}
      groups: [{kind: full_attention, block_size: 24}, {kind: sliding_window, block_size: 24, sliding_window: 48}]
    - {name: sg, block_size: 1, pool: "-", hash: {type: SGLang}}
  sources:
    - {model: llama, instance_id: engine-0, endpoint: "tcp://127.0.0.1:5557", replay_endpoint: "tcp://127.0.0.1:5558", topic: kv, exact_copies: true}
    - {name: x, model: llama, tenant_id: acme, instance_id: engine-0, dp_rank: 1, endpoint: "tcp://*:5559", bind: true, timeout: 3s}
  register: ["tcp://10.0.0.0/8:5557-5564"]
  max_bytes: 32MiB
  peers: ["http://10.0.0.2:8557", "https://h:1/"]
  peer_token_file: token
`)
	want := defaultRouter()
	want.Listen = &Listener{Address: "127.0.0.1:8557"}
	const most, ttl = 16 << 20, Duration(2 * time.Minute)
	want.Models = []RouterModel{
		{Name: "llama", Tenant: "default", BlockSize: 32, Release: "0.30.0", MaxBytes: 32 << 20, MaxBlocks: most, PredictTTL: ttl},
		{Name: "llama", Tenant: "acme", BlockSize: 64, Pool: "b", MaxBytes: 64 << 20, MaxBlocks: 5, PredictTTL: Duration(time.Second)},
		{
			Name: "org/qwen", Tenant: "default", BlockSize: 24, Pool: "-", Release: "0.29.0", MaxBytes: 32 << 20, MaxBlocks: most, PredictTTL: ttl,
			Hash:   &router.Hashing{Type: "vllm", Release: "0.29.0", Algorithm: "xxhash", Seed: new("0")},
			Groups: []coordinator.Group{{BlockSize: 24}, {Kind: coordinator.SlidingWindow, BlockSize: 24, SlidingWindow: 48}},
		},
		{Name: "sg", Tenant: "default", BlockSize: 1, Pool: "-", MaxBytes: 32 << 20, MaxBlocks: most, PredictTTL: ttl, Hash: &router.Hashing{Type: "sglang"}},
	}
	want.Sources = []router.Source{
		{Name: "tcp://127.0.0.1:5557", Model: "llama", Tenant: "default", Engine: "engine-0", Endpoint: "tcp://127.0.0.1:5557", Replay: "tcp://127.0.0.1:5558", Topic: "kv", ExactCopies: true, Timeout: Duration(10 * time.Second)},
		{Name: "x", Model: "llama", Tenant: "acme", Engine: "engine-0", Rank: 1, Endpoint: "tcp://*:5559", Bind: true, Timeout: Duration(3 * time.Second)},
	}
	want.Register, want.MaxBytes = []string{"tcp://10.0.0.0/8:5557-5564"}, 32<<20
	want.Peers, want.PeerTokenFile = []string{"http://10.0.0.2:8557", "https://h:1/"}, "token"
	assert.Equal(t, want, c.Router)
	text, err := c.YAML()
	require.NoError(t, err)
	assert.Equal(t, want, load(t, string(text)).Router, "%s", text)
}

// The only model is that of sources which name none. Without pool in the configuration no pool is asked.
func TestRouterDefaults(t *testing.T) {
	c := load(t, "router:\n  listen: \"\"\n  models: [{name: m, tenant_id: t, block_size: 8}]\n  sources: [{instance_id: a, endpoint: \"tcp://a:1\"}]\n")
	assert.Nil(t, c.Router.Listen)
	assert.Equal(t, NoPool, c.Router.Models[0].Pool, "also where the printed configuration, which has a pool, is read")
	assert.Equal(t, "m", c.Router.Sources[0].Model)
	assert.Equal(t, "t", c.Router.Sources[0].Tenant)
	assert.True(t, c.Router.IsServed())
	c = load(t, "router: {max_bytes: 2GiB}\n")
	assert.False(t, c.Router.IsServed(), "it says nothing that needs a fleet")
}

func TestRouterErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`router: {listen: "ipc:///x"}`, `c.yaml:1:18: router.listen: "ipc:///x": HTTP is served over TCP alone; write tcp://host:port or tls://host:port`},
		{`router: {listen: "a"}`, `c.yaml:1:18: router.listen: "a": missing port in address; write tcp://host:port, an IPv6 address in brackets`},
		{`router: {listen: "127.0.0.1:7557"}`, `c.yaml:1:18: router.listen: "127.0.0.1:7557" is the address of listen[0], too; give each its own`},
		{"metrics: 127.0.0.1:1\nrouter: {listen: {address: 127.0.0.1:1}}", `c.yaml:2:28: router.listen.address: "127.0.0.1:1" is the address of metrics, too; give each its own`},
		{`router: {listen: {allow: all}}`, `c.yaml:1:10: router.listen.address: is missing; give one such as tcp://127.0.0.1:7557`},
		{`router: {listen: {address: "a:1", allow: [query]}}`, `c.yaml:1:43: router.listen.allow[0]: "query" ` + unknownRequest},
		{`router: {listen: "tls://a:1"}`, `c.yaml:1:18: router.listen: "tls://a:1" needs tls: {cert: FILE, key: FILE} in the YAML file`},
		{`router: {register: ["tcp://a:1"]}`, `c.yaml:1:10: router.register: needs router.listen, the address that POST /register is served at, such as 127.0.0.1:8557`},
		{`router: {max_models: 0}`, `c.yaml:1:22: router.max_models: 0 is too small, must be at least 1`},
		{`router: {max_bytes: 1MiB}`, `c.yaml:1:21: router.max_bytes: 1MiB is too small, must be at least 16MiB`},
		{`router: {predict_ttl: 0}`, `c.yaml:1:23: router.predict_ttl: 0s is too small, must be at least 100ms`},
		{`router: {peer_timeout: 0}`, `c.yaml:1:24: router.peer_timeout: 0s is too small, must be at least 1ms`},
		{`router: {peers: ["10.0.0.2:8557"]}`, `c.yaml:1:18: router.peers[0]: not the address of a peer; write http://host:port or https://host:port`},
		{`router: {peers: ["http://u:secret@h:1"]}`, `c.yaml:1:18: router.peers[0]: not the address of a peer; write http://host:port or https://host:port`},
		{`router: {peers: ["http://h/dump"]}`, `c.yaml:1:18: router.peers[0]: not the address of a peer; write http://host:port or https://host:port`},

		{`router: {max_models: 1, models: [a, b]}`, `c.yaml:1:25: router.models: 2 models; at most 1 are possible, see max_models`},
		{`router: {models: [a]}`, `c.yaml:1:19: router.models[0].block_size: is missing, and no pool has it; give the tokens of a block, the engines' hash_block_size`},
		{`router: {models: [{}]}`, `c.yaml:1:19: router.models[0]: has no name; give 1 to 256 bytes of printable characters`},
		{`router: {models: [{name: a, block_size: 1}, {name: a, block_size: 1}]}`, `c.yaml:1:52: router.models[1].name: "a" of tenant "default" is a model before it`},
		{`router: {models: [{name: a, pool: b}]}`, `c.yaml:1:35: router.models[0].pool: there is no pool "b"; configure it under pools, or write "-" for none`},
		{"pool: {}\nrouter: {models: [{name: a, block_size: 64}]}", `c.yaml:2:41: router.models[0].block_size: is 64, and the hash_block_size of its pool is 16; give the same, or pool: "-"`},
		{`router: {models: [{name: a, hicache_layout: "http://e"}]}`, `c.yaml:1:45: router.models[0].hicache_layout: needs backend.mooncake, the store of the engines, whose keys it says`},
		{`router: {models: [{name: a, hicache_layout: ["http://e", e]}]}`, `c.yaml:1:58: router.models[0].hicache_layout[1]: not the address of a layout; write http://host:port/get_hicache_l3_cache_layout, of an engine`},
		{`router: {models: [{name: a, hicache_layout: e}]}`, `c.yaml:1:45: router.models[0].hicache_layout: not the address of a layout; write http://host:port/get_hicache_l3_cache_layout, of an engine`},
		{`router: {models: [{name: a, hicache_layout: [` + strings.Repeat(`"http://e",`, 17) + `]}]}`, `c.yaml:1:29: router.models[0].hicache_layout: has 17 addresses; at most 16 are asked`},
		{"backend: {mooncake: {masters: [\"a:1\"]}}\npools: {p: {}}\nrouter: {models: [{name: a, pool: p, hicache_layout: \"http://e\"}]}", `c.yaml:3:54: router.models[0].hicache_layout: is there beside pool "p"; give one of them`},
		{"backend: {mooncake: {masters: [\"a:1\"]}}\nrouter: {models: [{name: a, hicache_layout: \"http://e\", hash: {type: vllm}}]}", `c.yaml:2:45: router.models[0].hicache_layout: needs hash: {type: sglang}: the store's keys are made of token ids`},
		{"backend: {mooncake: {masters: [\"a:1\"]}}\nrouter: {models: [{name: a, hicache_layout: \"http://e\", hash: {type: SGLang}}]}", `c.yaml:2:19: router.models[0].block_size: is missing; give the engines' page_size`},
		{`router: {models: [{name: a, block_size: -1}]}`, `c.yaml:1:41: router.models[0].block_size: a block of -1 tokens, must be 1 to 2147483647`},
		{`router: {models: [{name: a, predict_ttl: 1ms}]}`, `c.yaml:1:42: router.models[0].predict_ttl: 1ms is too small, must be at least 100ms`},
		{`router: {models: [{name: a, block_size: 16, hash: {release: 0.24.0}}]}`, `c.yaml:1:45: router.models[0].hash: has no seed, and these engines draw it at random; set PYTHONHASHSEED in them, and give it here`},

		{`router: {models: [{name: a, block_size: 1}], sources: [{endpoint: "tcp://a:1"}]}`, `c.yaml:1:56: router.sources[0]: has no instance_id; give 1 to 256 bytes of printable characters`},
		{`router: {models: [{name: a, block_size: 1}], sources: [{instance_id: i}]}`, `c.yaml:1:56: router.sources[0]: has no endpoint; give the publisher's, such as tcp://127.0.0.1:5557`},
		{`router: {models: [{name: a, block_size: 1}], sources: [{instance_id: i, endpoint: "tcp://*:1"}]}`, `c.yaml:1:83: router.sources[0].endpoint: bad endpoint "tcp://*:1": no host to connect to; * is for the side that binds`},
		{`router: {models: [{name: a, block_size: 1}], sources: [{instance_id: i, endpoint: "tcp://a:1", replay_endpoint: "tcp://a"}]}`, `c.yaml:1:113: router.sources[0].replay_endpoint: bad endpoint "tcp://a": write tcp://host:port, an IPv6 address in brackets`},
		{`router: {models: [{name: a, block_size: 1}], sources: [{instance_id: i, endpoint: "tcp://a:1", name: "\x07"}]}`, `c.yaml:1:102: router.sources[0].name: "\a" is no name; give 1 to 256 bytes of printable characters`},
		{`router: {listen: 127.0.0.1:8557}`, `c.yaml:1:18: router.listen: has no model to answer about; configure router.models, router.register or router.peers`},
		{`router: {sources: [{instance_id: i, endpoint: "tcp://a:1"}]}`, `c.yaml:1:20: router.sources[0]: has no model; configure router.models`},
		{`router: {models: [{name: a, block_size: 1}, {name: b, block_size: 1}], sources: [{instance_id: i, endpoint: "tcp://a:1"}]}`, `c.yaml:1:82: router.sources[0]: has no model; name one of router.models`},
		{`router: {models: [{name: a, block_size: 1}], sources: [{instance_id: i, endpoint: "tcp://a:1", block_size: 2}]}`, `c.yaml:1:108: router.sources[0].block_size: is 2, and that of model "a" is 1; give the same, or leave it out`},
		{`router: {models: [{name: a, block_size: 1}], sources: [{instance_id: i, endpoint: "tcp://a:1", type: sglang}]}`, `c.yaml:1:102: router.sources[0].type: is sglang, and model "a" has engines of another type; leave it out, or name another model`},
		{`router: {models: [{name: a, block_size: 16, hash: {release: 0.32.0, lookahead: 1}}]}`, `c.yaml:1:80: router.models[0].hash.lookahead: the hashes of vLLM 0.32.0 cover no lookahead tokens`},
		{"pool: {hash_len: 32}\nrouter: {models: [{name: a, hash: {algorithm: xxhash, seed: 0}}]}", `c.yaml:2:47: router.models[0].hash.algorithm: makes hashes of 16 bytes, and those of the pool have 32; give the engines' own`},
		{`router: {models: [{name: a, block_size: 1}], sources: [{model: b, instance_id: i, endpoint: "tcp://a:1"}]}`, `c.yaml:1:64: router.sources[0].model: there is no model "b" of tenant "default"; configure it under router.models`},
		{`router: {models: [{name: a, block_size: 1}], sources: [{instance_id: i, endpoint: "tcp://a:1"}, {instance_id: j, endpoint: "tcp://a:1"}]}`, `c.yaml:1:124: router.sources[1].endpoint: "tcp://a:1" is that of sources[0]; give one of them a name`},
		{`router: {models: [{name: a, block_size: 1}], sources: [{name: n, instance_id: i, endpoint: "tcp://a:1"}, {name: n, instance_id: j, endpoint: "tcp://a:2"}]}`, `c.yaml:1:113: router.sources[1].name: "n" is the name of sources[0]; give another`},
		{`router: {models: [{name: a, block_size: 1}], sources: [{instance_id: i, endpoint: "tcp://a:1"}, {instance_id: i, endpoint: "tcp://a:2"}]}`, `c.yaml:1:111: router.sources[1].instance_id: a source before it is of rank 0 of "i"; a rank has one source`},
	} {
		t.Run(test.text, func(t *testing.T) { assert.Equal(t, test.want, fails(t, test.text+"\n")) })
	}
}

// What the listener allows can change while the server runs, the rest of the section cannot.
func TestRouterMerge(t *testing.T) {
	before := load(t, "router: {listen: 127.0.0.1:8557, models: [{name: a, block_size: 1}]}\n")
	next := load(t, "router: {listen: {address: 127.0.0.1:8557, allow: []}, models: [{name: b, block_size: 1}], max_bytes: 2GiB}\n")
	merged, changed, left := before.Merge(next)
	assert.Equal(t, []string{"router.listen"}, changed)
	assert.Equal(t, []string{"router.models", "router.max_bytes"}, left)
	assert.Equal(t, Allow{}, merged.Router.Listen.Allow)
	assert.Nil(t, before.Router.Listen.Allow)

	_, changed, left = before.Merge(load(t, "router: {listen: 127.0.0.1:8558, models: [{name: a, block_size: 1}]}\n"))
	assert.Empty(t, changed)
	assert.Equal(t, []string{"router.listen"}, left)
}
