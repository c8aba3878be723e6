package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func load(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Load(Source{File: write(t, text)})
	require.NoError(t, err)
	return c
}

// What can change while a server runs is merged, all else is named and left.
func TestMerge(t *testing.T) {
	for _, test := range []struct {
		name, before, after string
		changed, left       []string
	}{
		{"nothing", "loops: 1\n", "# text\nloops: 1\nlog: {level: info}\npool: {tp_size: 1}\n", nil, nil},
		{
			"at once", "{}\n", "log: {level: debug}\ndrain_delay: 5s\ndrain_timeout: 1s\n",
			[]string{"drain_delay", "drain_timeout", "log.level"}, nil,
		},
		{
			"after a restart", "{}\n", "log: {format: json}\nipc_mode: 0666\nloops: 2\nmax_pools: 3\nmetrics: 127.0.0.1:1\npprof: true\nlimits: {max_account: 1MiB}\n" +
				"backend: {memory: {max_bytes: 2GiB, max_entries: 7}}\n", nil,
			[]string{"ipc_mode", "loops", "max_pools", "backend.memory.max_bytes", "backend.memory.max_entries", "limits.max_account", "metrics", "pprof", "log.format"},
		},
		{
			"limits", "{}\n", "limits: {max_message: 1MiB, max_hashes: 1, max_connections: 1, max_in_flight: 1, max_memory: 1GiB, write_timeout: 1m, handshake_timeout: 1m, message_timeout: 1h, idle_timeout: 1h}\n",
			[]string{
				"limits.max_message", "limits.max_hashes", "limits.max_connections", "limits.max_in_flight", "limits.max_memory",
				"limits.write_timeout", "limits.handshake_timeout", "limits.message_timeout", "limits.idle_timeout",
			}, nil,
		},
		{
			"memory over a store", "backend: {redis: {url: redis://x}}\n", "backend: {redis: {url: redis://x}}\nlimits: {max_memory: 1GiB, max_hashes: 7}\n",
			[]string{"limits.max_hashes"}, []string{"limits.max_memory"},
		},
		{"its own pool", "{}\n", "accept_pools: true\npool: {tp_size: 2, groups: [{kind: mamba, block_size: 16}]}\n", []string{"pool.tp_size", "pool.num_kv_head", "pool.groups", "accept_pools"}, nil},
		{"another backend", "{}\n", "pool: {model_name: m}\nbackend: {redis: {url: redis://x}}\n", []string{"pool.model_name"}, []string{"backend.redis.url", "backend"}},
		{"a pool", "pool: {tp_size: 1}\npools: {a: {}, b: {}, c: {}}\n", "pool: {tp_size: 1}\npools: {a: {}, b: {tp_size: 2}, d: {}}\n", []string{"pools.b", "pools.c", "pools.d"}, nil},
		{"a first pool", "{}\n", "pools: {a: {}}\n", []string{"pools.a"}, nil},
		{
			"a pool of a router", "pools: {a: {}, b: {}}\nrouter: {models: [{name: m, pool: a}]}\n", "pools: {a: {}, b: {tp_size: 2}}\nrouter: {models: [{name: m, pool: a}]}\n",
			[]string{"pools.b"}, nil,
		},
		{
			"a pool that a router has", "pools: {a: {}, b: {}}\nrouter: {models: [{name: m, pool: a}]}\n", "pools: {a: {tp_size: 2}}\nrouter: {models: [{name: m, pool: a}]}\n",
			nil, []string{"pools.a", "pools.b"},
		},
		{
			"the own pool that a router has", "pool: {tp_size: 1}\nrouter: {models: [m]}\n", "pool: {tp_size: 2}\nrouter: {models: [m]}\n",
			nil, []string{"pool.tp_size", "pool.num_kv_head"},
		},
		{"an address with its scheme", "listen: [a:1]\n", "listen:\n  - {address: \"tcp://a:1\", allow: all}\n", []string{"listen"}, nil},
		{"an entry", "listen: [a:1, b:2]\n", "listen:\n  - b:2\n  - {address: a:1, allow: all}\n", []string{"listen"}, nil},
		{"an address", "listen: [a:1, b:2]\n", "listen:\n  - {address: b:2, tokens: t}\n  - c:1\n", []string{"listen"}, []string{"listen"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, next := load(t, test.before), load(t, test.after)
			merged, changed, left := c.Merge(next)
			assert.ElementsMatch(t, test.changed, changed)
			assert.ElementsMatch(t, test.left, left)

			// What is left is named again, what has changed is not.
			_, changed, again := merged.Merge(next)
			assert.Empty(t, changed)
			assert.Equal(t, left, again)
		})
	}
}
