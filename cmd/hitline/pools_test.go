package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/client"
)

// Several pools in one process: each command asks about the one that it names.
func TestPools(t *testing.T) {
	s := startServe(t, "pool: {model_name: a}\npools: {big: {vllm: 0.29.0, model_name: b, tp_size: 2}}\nmetrics: 127.0.0.1:0\n")
	hashes := strings.Join(hexHashes("h", 8, 32), "\n")
	ask := func(line string) result {
		return hitline(t, hashes, append(strings.Fields(line), "--connect", s.address)...)
	}
	assert.Contains(t, s.log.String(), "the index is empty: every lookup is a hit of 0 until")
	require.Equal(t, exitDone, ask("store --hashes-file -").code)
	for tp := range 2 {
		got := ask("store --pool big --hashes-file - --tp-rank " + string(rune('0'+tp)))
		require.Equal(t, exitDone, got.code, got.stderr)
	}
	assert.Equal(t, result{exitDone, "128\n", ""}, ask("lookup --tokens 128 --hashes-file -"))
	got := ask("lookup --pool big --tokens 128 --hashes-file - --json")
	assert.Equal(t, `{"hit_tokens":112,"start_tokens":0,"num_tokens":128,"hashes":8,"tail_boundaries":[112]}`+"\n", got.stdout)
	got = ask("lookup --pool big --tokens 129 --hashes-file - --explain --json")
	assert.Contains(t, got.stdout, `{"pool":"big","start_tokens":0,"hit_tokens":128,`)
	got = ask("stat --pool big")
	assert.Regexp(t, `(?m)^pool +big$`, got.stdout)
	assert.Regexp(t, `(?m)^pools +2$`, got.stdout)
	got = ask("lookup --pool nobody --tokens 128 --hashes-file -")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, `the server has no pool "nobody" for you; hitline pools lists them`)
	require.Equal(t, exitDone, ask("reset --yes --pool big").code)
	assert.Equal(t, result{exitDone, "128\n", ""}, ask("lookup --tokens 128 --hashes-file -"))
}

// pools lists the server's own pool and those with names.
func TestListPools(t *testing.T) {
	s := startServe(t, "pool: {model_name: a, vllm: 0.32.0}\npools: {big: {vllm: 0.29.0, model_name: b, hash_block_size: 32}}\n")
	want := `name  vllm    block size  backend  model  lookups
-     0.32.0  16          memory   "a"    0
big   0.29.0  32          memory   "b"    0
`
	assert.Equal(t, result{exitDone, want, ""}, hitline(t, "", "pools", "--connect", s.address))
	assert.Equal(t, `{"pools":[{"name":"big","vllm":"0.29.0","hash_block_size":32,"backend":"memory","model_name":"b","lookups":0}]}`+"\n",
		hitline(t, "", "pools", "--connect", s.address, "--pool", "big", "--json").stdout)

	shared := startServe(t, "accept_pools: true\nmax_pools: 2\nbackend: {memory: {max_bytes: 100MiB}}\n")
	assert.Contains(t, hitline(t, "", "pools", "--connect", shared.address).stdout, "the server has no pool yet")
	assert.Contains(t, hitline(t, "00", "lookup", "--tokens", "16", "--hashes-file", "-", "--connect", shared.address).stderr,
		"the server has no pool of its own; name one by --pool: hitline pools lists them")
}

// The master's address may come from Mooncake's own configuration.
func TestMooncakeConfigPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mooncake.json")
	t.Setenv("MOONCAKE_CONFIG_PATH", file)
	check := func(args ...string) result { return hitline(t, "", append([]string{"serve", "--check"}, args...)...) }
	got := check("--backend", "mooncake")
	assert.Equal(t, exitUsage, got.code)
	assert.Contains(t, got.stderr, "MOONCAKE_CONFIG_PATH: open "+file)
	for text, want := range map[string]string{
		"x":  "is no JSON",
		"{}": "has no master_server_address; give the address in backend.mooncake.masters",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		got = check("--backend", "mooncake")
		assert.Equal(t, exitUsage, got.code)
		assert.Contains(t, got.stderr, want)
	}
	for _, locator := range []string{"etcd://10.0.0.1:2379", "k8s://namespace/lease", "redis://:secret@10.0.0.1:6379"} {
		scheme, _, _ := strings.Cut(locator, ":")
		require.NoError(t, os.WriteFile(file, []byte(`{"master_server_address": "`+locator+`"}`), 0o600))
		got = check("--backend", "mooncake")
		assert.Equal(t, exitUsage, got.code)
		assert.Contains(t, got.stderr, "MOONCAKE_CONFIG_PATH: backend.mooncake.masters: "+scheme+"://…: hitline does not find masters by etcd, "+
			"Kubernetes or Redis: name the RPC addresses host:port of all masters, or one name that resolves to all of them")
		assert.NotContains(t, got.stderr, "secret")
		t.Setenv("HITLINE_BACKEND_MOONCAKE_MASTERS", locator)
		got = check("--backend", "mooncake")
		assert.Equal(t, exitUsage, got.code)
		assert.Contains(t, got.stderr, scheme+"://…: hitline does not find masters by etcd, Kubernetes or Redis")
		assert.NotContains(t, got.stderr, "secret")
		require.NoError(t, os.Unsetenv("HITLINE_BACKEND_MOONCAKE_MASTERS"))
	}
	require.NoError(t, os.WriteFile(file, []byte(`{"master_server_address": "10.0.0.1:50051, 10.0.0.2:50051"}`), 0o600))
	got = check("--backend", "mooncake")
	assert.Equal(t, exitDone, got.code, got.stderr)
	assert.Contains(t, got.stdout, `- "10.0.0.2:50051"`)
	require.NoError(t, os.WriteFile(file, []byte(`{"master_server_address": "10.0.0.1:50051", "protocol": "tcp"}`), 0o600))
	got = check("--backend", "mooncake")
	assert.Equal(t, exitDone, got.code, got.stderr)
	assert.Contains(t, got.stdout, `- "10.0.0.1:50051"`)
	assert.Contains(t, got.stdout, "accept_pools: true")
	assert.NotContains(t, got.stdout, "\npool:")
	assert.Equal(t, exitDone, check().code, "another backend does not read it")
}

// Clients are told for how long Mooncake keeps a block that was found, other stores state no time, and for how
// long a lookup waits for a store.
func TestTimesOfStores(t *testing.T) {
	silent := silentListener(t)
	for backend, want := range map[string]int64{
		"mooncake: {masters: ['" + silent + "']}":               5000,
		"mooncake: {masters: ['" + silent + "'], lease: 700ms}": 700,
		"redis: {url: 'redis://" + silent + "'}":                0,
		"memory: {}":                                            0,
	} {
		s := startServe(t, "pool: {model_name: m}\nbackend: {"+backend+"}\n")
		c, err := client.Dial(t.Context(), s.address, client.WithPoolName(""))
		require.NoError(t, err)
		pool, _ := c.Pool()
		assert.Equal(t, want, pool.LeaseMS, backend)
		assert.Equal(t, backend != "memory: {}", pool.BackendTimeoutMS == 100, backend)
		require.NoError(t, c.Close())
	}
	got := hitline(t, "", "serve", "--check", "--config", configFile(t, "backend: {mooncake: {masters: ['127.0.0.1:1'], lease: 1us}}\n"))
	assert.Contains(t, got.stderr, "backend.mooncake.lease: 1µs is too small, must be at least 1ms")
}

// Each pool over memory needs a part of it that an index can use.
func TestMemoryOfPools(t *testing.T) {
	got := hitline(t, "", "serve", "--check", "--config", configFile(t, "accept_pools: true\nbackend: {memory: {max_bytes: 64MiB}}\n"))
	assert.Equal(t, exitUsage, got.code)
	assert.Contains(t, got.stderr, "backend.memory.max_bytes: 67108864 bytes are 1048576 for each of 64 pools, the least is 2097152: raise it, or lower max_pools")
	t.Setenv("HITLINE_POOLS_A_TP_SIZE", "2")
	got = hitline(t, "", "serve", "--check")
	assert.Contains(t, got.stderr, "HITLINE_POOLS_A_TP_SIZE: no such variable; write the pools as YAML in HITLINE_POOLS")
}

// The section of the memory index becomes its configuration.
func TestIndexConfig(t *testing.T) {
	for text, want := range map[string]index.Config{
		"{}":                                {MaxBytes: 1 << 30},
		"{max_bytes: 4MiB, max_entries: 7}": {MaxBytes: 4 << 20, MaxEntries: 7},
	} {
		cfg, err := config.Load(config.Source{File: configFile(t, "backend: {memory: "+text+"}\n")})
		require.NoError(t, err)
		assert.Equal(t, want, indexConfig(cfg), text)
	}
}

// Doctor needs a pool, configured or of a server, to look a prompt up.
func TestDoctorWithoutPool(t *testing.T) {
	shared := configFile(t, "backend: {mooncake: {masters: ['127.0.0.1:1']}}\n")
	got := hitline(t, "", "doctor", "--config", shared)
	assert.Equal(t, exitNoConnection, got.code)
	assert.Contains(t, got.stdout, "no pool is configured, so keys were not compared")
	got = hitline(t, "00", "doctor", "--config", shared, "--tokens", "16", "--hashes-file", "-")
	assert.Equal(t, exitUsage, got.code)
	assert.Contains(t, got.stderr, "no pool is configured; give --pool and the name of one that a running server has, or configure pool")
	got = hitline(t, "", "doctor", "--connect", "127.0.0.1:1")
	assert.Equal(t, exitUsage, got.code)
	assert.Contains(t, got.stderr, "--connect is of no use without --pool")
	got = hitline(t, "", "doctor", "--pool", "x", "--connect", closedAddress(t), "--timeout", "2s")
	assert.Equal(t, exitNoConnection, got.code, got.stderr)
}

// Over one Redis each described pool has its own blocks.
func TestDescribedPoolsOverRedis(t *testing.T) {
	redis := storetest.StartRedis(t)
	s := startServe(t, "backend: {redis: {url: 'redis://"+redis.Addr+"', timeout: 20s}}\n")
	dial := func(model string, groups ...coordinator.Group) (*client.Client, error) {
		return client.Dial(t.Context(), s.address, client.WithPool("", coordinator.Pool{VLLM: "0.28.0", ModelName: model, Groups: groups}))
	}
	hashes := coordinator.NewHashes([]byte(strings.Repeat("a", 32)+strings.Repeat("b", 32)), 32)
	one, err := dial("one")
	require.NoError(t, err)
	defer one.Close()
	two, err := dial("two", coordinator.Group{BlockSize: 32})
	require.NoError(t, err)
	defer two.Close()
	require.NoError(t, one.Store(t.Context(), coordinator.GroupRank{}, hashes))
	hits := func() (all []int64) {
		for _, c := range []*client.Client{one, two} {
			hit, err := c.Lookup(t.Context(), 65, hashes)
			require.NoError(t, err)
			all = append(all, hit.Tokens)
		}
		return all
	}
	assert.Equal(t, []int64{32, 0}, hits())
	require.NoError(t, two.Store(t.Context(), coordinator.GroupRank{}, hashes))
	assert.Equal(t, []int64{32, 32}, hits())
	require.NoError(t, one.Reset(t.Context()))
	assert.Equal(t, []int64{0, 32}, hits())
	_, err = dial("")
	require.ErrorContains(t, err, "model_name: is missing; set it to the engine's model, with which the keys in a Redis begin")
	_, err = client.Dial(t.Context(), s.address, client.WithPool("", coordinator.Pool{ModelName: "m", Layout: coordinator.LayoutLMDeploy, HashBlockSize: 64}))
	require.ErrorContains(t, err, "layout: is lmdeploy, whose engines store in Mooncake alone; leave it out, or use backend.mooncake")
}

// Where engines have described pools, stat prints the sums of their counters, and a line for each. Who may not ask for pools
// is told so.
func TestStatOfPools(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(tokens, []byte("tokens: [{name: stat, token: "+theToken+", allow: [stat]}]\n"), 0o600))
	s := startServe(t, "pool: {}\naccept_pools: true\nmax_pools: 2\nbackend: {memory: {max_bytes: 100MiB}}\n")
	hashes := coordinator.NewHashes([]byte(strings.Repeat("a", 32)+strings.Repeat("b", 32)), 32)
	for name, lookups := range map[string]int{"tiny": 2, "big": 1} {
		c, err := client.Dial(t.Context(), s.address, client.WithPool(name, coordinator.Pool{VLLM: "0.29.0"}))
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Store(t.Context(), coordinator.GroupRank{}, hashes))
		for range lookups {
			hit, err := c.Lookup(t.Context(), 33, hashes)
			require.NoError(t, err)
			require.EqualValues(t, 32, hit.Tokens)
		}
	}
	var got result
	lookuptest.Eventually(t, "all prompts are counted", func() bool {
		got = hitline(t, "", "stat", "--connect", s.address)
		return strings.Contains(got.stdout, "prompts           2\n")
	})
	require.Equal(t, exitDone, got.code, got.stderr)
	assert.Regexp(t, `(?m)^lookups +3$`, got.stdout)
	assert.Regexp(t, `(?m)^tokens.pool +64$`, got.stdout, "two asks of one prompt are one")
	assert.Regexp(t, `(?m)^entries +4$`, got.stdout)
	_, lines, _ := strings.Cut(got.stdout, "\n\n")
	assert.Equal(t, `pool  vllm    lookups  hit share  stored  evicted
-     0.24.0  0        -          0       0
big   0.29.0  1        100.0 %    2       0
tiny  0.29.0  2        100.0 %    2       0
`, lines)
	got = hitline(t, "", "stat", "--connect", s.address, "--pool", "tiny")
	assert.Regexp(t, `(?m)^lookups +2$`, got.stdout)
	assert.NotContains(t, got.stdout, "\n\n")
	assert.Contains(t, hitline(t, "", "stat", "--connect", s.address, "--json").stdout, `"lookups":0,`)

	config := configFile(t, "pools: {a: {}}\nlisten: [{address: 'tcp://127.0.0.1:0', tokens: "+tokens+"}]\nlog: {format: json}\n")
	limited := awaitReady(t, func(ctx context.Context, log io.Writer) int {
		return run(ctx, []string{"serve", "--config", config}, nil, io.Discard, log)
	})
	got = hitline(t, "", "stat", "--connect", limited.address, "--token-file", writeToken(t, theToken))
	assert.Equal(t, exitDone, got.code)
	assert.Equal(t, "hitline: the counters of the pools are left out: "+limited.address+": refused by the server: not allowed: pool; this connection may: stat\n", got.stderr)
}

// stat prints only counters that the backend has.
func TestStatOfBackends(t *testing.T) {
	for backend, has := range map[string][]string{
		"memory: {}": memoryCounters,
		"redis: {url: 'redis://" + silentListener(t) + "'}": storeCounters,
	} {
		s := startServe(t, "pool: {model_name: m}\nbackend: {"+backend+"}\n")
		text := hitline(t, "", "stat", "--connect", s.address).stdout
		for _, key := range slices.Concat(memoryCounters, storeCounters) {
			assert.Equal(t, slices.Contains(has, key), strings.Contains("\n"+text, "\n"+key+" "), key)
			assert.Contains(t, hitline(t, "", "stat", "--json", "--connect", s.address).stdout, `"`+key+`":`)
		}
	}
}

// Numbers that no engine has are served, as a description of them is, but a file with them is doubted.
func TestWarnsOfKVHeads(t *testing.T) {
	const odd = "num_kv_head is 3 and tp_size 8: neither divides the other"
	file := configFile(t, "pool: {num_kv_head: 3, tp_size: 8}\npools: {a: {num_kv_head: 3, tp_size: 8}, b: {num_kv_head: 4, tp_size: 8}}\n")
	got := hitline(t, "", "serve", "--check", "--config", file)
	assert.Equal(t, exitDone, got.code)
	assert.Equal(t, 2, strings.Count(got.stderr, "\n"), got.stderr)
	for _, pool := range []string{"pool", "pools.a"} {
		assert.Contains(t, got.stderr, "hitline: warning: "+pool+"."+odd)
	}
	got = hitline(t, "", "doctor", "--config", file)
	assert.Equal(t, exitDone, got.code, got.stderr)
	assert.Contains(t, got.stdout, "pool."+odd)
}
