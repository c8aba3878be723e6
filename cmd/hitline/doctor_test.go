package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
)

// closedAddress returns an address on which no process listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// runDoctor runs doctor with --json.
func runDoctor(t *testing.T, config string, args ...string) doctorResult {
	t.Helper()
	got := hitline(t, "", append([]string{"doctor", "--json", "--config", configFile(t, config)}, args...)...)
	require.Equal(t, 1, strings.Count(got.stdout, "\n"), got.stdout)
	var d doctorResult
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &d), got.stdout)
	assert.Equal(t, d.Exit, got.code)
	if d.Error == "" {
		assert.Empty(t, got.stderr)
	} else {
		assert.Equal(t, "hitline: "+d.Error+"\n", got.stderr)
	}
	return d
}

func TestDoctorOfMemory(t *testing.T) {
	got := hitline(t, "", "doctor")
	assert.Equal(t, exitDone, got.code)
	assert.Contains(t, got.stdout, "backend  memory\n")
	assert.Contains(t, got.stdout, "there is nothing to connect to")

	d := runDoctor(t, "pool: {model_name: a/m, cache_prefix: p, tp_size: 8}\n")
	assert.Equal(t, 8, d.GroupRanks)
	assert.Len(t, d.Patterns, 4, "the first few")
	assert.Equal(t, "p@m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@HASH", d.Patterns[0])

	assert.Len(t, runDoctor(t, "pools: {a: {model_name: m}}\n").Notes, 1, "nothing of keys, of which there are none")
}

func TestDoctorWithoutConnection(t *testing.T) {
	dead := closedAddress(t)
	for name, config := range map[string]string{
		"redis":    "pool: {model_name: m}\nbackend: {redis: {url: 'redis://:s3cret@" + dead + "'}}\n",
		"mooncake": "pool: {model_name: m}\nbackend: {mooncake: {masters: [" + dead + "]}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			d := runDoctor(t, config, "--timeout", "2s")
			assert.Equal(t, exitNoConnection, d.Exit)
			assert.Equal(t, name, d.Backend)
			assert.Equal(t, dead, d.Address)
			assert.Contains(t, d.Error, dead)
			assert.NotContains(t, d.Error, "s3cret")
		})
	}
}

func TestStoreConfigurationErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"pool:\n  model_name: ''\nbackend: {redis: {url: redis://x}}\n", ":2:15: pool.model_name: is missing; set it to the engine's model, with which the keys in a Redis begin"},
		{"pool:\n  hash_block_size: 16\nbackend: {redis: {url: redis://x}}\n", ":1:1: pool.model_name: is missing; set it to the engine's model, with which the keys in a Redis begin"},
		{"pool:\n  model_name: m\n  layout: lmdeploy\n  hash_block_size: 64\nbackend: {redis: {url: redis://x}}\n", ":3:11: pool.layout: is lmdeploy, whose engines store in Mooncake alone; leave it out, or use backend.mooncake"},
		{"pools:\n  p:\n    model_name: m\n    layout: lmdeploy\n    hash_block_size: 64\nbackend: {redis: {url: redis://x}}\n", ":4:13: pools.p.layout: is lmdeploy, whose engines store in Mooncake alone; leave it out, or use backend.mooncake"},
		{"backend:\n  redis:\n    url: http://:s3cret@x\npool: {model_name: m}\n", ":3:10: backend.redis.url: the URL must begin with redis://, rediss:// (TLS), redis-cluster://, rediss-cluster:// or unix:// (or valkey for redis)"},
		{"backend:\n  redis:\n    url: redis-cluster://x/1\npool: {model_name: m}\n", ":3:10: backend.redis.url: a cluster has no database but 0"},
		{"backend:\n  mooncake:\n    masters: [x]\npool: {model_name: m}\n", `:3:5: backend.mooncake.masters: "x": it must be host:port, such as 127.0.0.1:50051: address x: missing port in address`},
		{"backend:\n  mooncake:\n    masters: ['x:1']\n    tenant: _x\npool: {model_name: m}\n", `:4:13: backend.mooncake.tenant: "_x": it must not begin with _ or hold control characters, nor be longer than 255 bytes`},
	} {
		path := configFile(t, test.text)
		for _, args := range [][]string{{"serve"}, {"serve", "--check"}, {"doctor"}} {
			got := hitline(t, "", append(args, "--config", path)...)
			assert.Equal(t, result{exitUsage, "", "hitline: " + path + test.want + "\n"}, got)
		}
	}
}

func TestDoctorOfRedis(t *testing.T) {
	server := storetest.StartRedis(t)
	address, client := server.Addr, server.Client(t)
	base := "backend: {redis: {url: 'redis://" + address + "'}}\n"
	d := runDoctor(t, base+"pool: {model_name: m}\n")
	assert.Equal(t, exitDone, d.Exit, d.Problems)
	assert.Regexp(t, `^redis \d`, d.Server)
	assert.Equal(t, "standalone", d.Mode)
	assert.Contains(t, strings.Join(d.Notes, "\n"), "nothing is stored yet")

	d = runDoctor(t, base) // whose engines describe their pools
	assert.Equal(t, exitDone, d.Exit, d.Problems)
	assert.Regexp(t, `^redis \d`, d.Server)
	assert.Equal(t, []string{"no pool is configured, so keys were not compared: give --pool and the name of one that a running server has, or configure pool"}, d.Notes)

	for i := range 10 {
		for rank := range 2 {
			key := fmt.Sprintf("p@m@tp_rank:%d@pcp0@dcp0@pp_rank:0@group:0@%064x", rank, i)
			require.NoError(t, client.Set(t.Context(), key, "", 0).Err())
		}
	}
	d = runDoctor(t, base+"pool: {model_name: m, cache_prefix: p, tp_size: 2}\n")
	assert.Empty(t, d.Problems)
	assert.Contains(t, d.Notes, "the hashes in the keys have 64 hexadecimal digits, 32 bytes; a lookup's must have as many")
	require.NoError(t, client.Set(t.Context(), "p@m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@00ff", "", 0).Err())
	d = runDoctor(t, base+"pool: {model_name: m, cache_prefix: p, tp_size: 2}\n")
	require.Len(t, d.Problems, 1)
	assert.Contains(t, d.Problems[0], "have 2 and 32 bytes")
}

// serve logs that the store is down, or accepts connections and does not answer, and answers 0. It may recover: the configuration is
// not wrong.
func TestServeWithoutStore(t *testing.T) {
	dead, silent := closedAddress(t), silentListener(t)
	for name, store := range map[string]string{
		"redis":           "redis: {url: 'redis://:s3cret@" + dead + "'}",
		"mooncake":        "mooncake: {masters: ['" + dead + "']}",
		"silent redis":    "redis: {url: 'redis://:s3cret@" + silent + "'}",
		"redis with TLS":  "redis: {url: 'rediss://:s3cret@" + silent + "'}",
		"silent mooncake": "mooncake: {masters: ['" + silent + "']}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServe(t, "pool: {model_name: m}\nbackend: {"+store+"}\n")
			all := s.storeLine(t)
			assert.Contains(t, all, `"level":"WARN","msg":"the store cannot be used`)
			assert.True(t, strings.Contains(all, dead) || strings.Contains(all, silent), all)
			backend, _, _ := strings.Cut(store, ":")
			assert.Contains(t, all, `"backend":"`+backend+`"`)
			assert.NotContains(t, all, "s3cret")
			got := hitline(t, strings.Repeat("00", 32)+"\n", "lookup", "--connect", s.address, "--tokens", "16", "--hashes-file", "-")
			assert.Equal(t, exitFailed, got.code)
			assert.Contains(t, got.stderr, "a hit of 0, as the lookup failed: ")
			assert.NotContains(t, got.stderr, "s3cret")
		})
	}
}

func TestServeFromRedis(t *testing.T) {
	server := storetest.StartRedis(t)
	client := server.Client(t)
	srv := startServe(t, "pool: {model_name: m}\nbackend: {redis: {url: 'redis://"+server.Addr+"', ttl: 1h, timeout: 20s}}\n")
	address := srv.address
	assert.Empty(t, srv.warnings())
	hashes := fmt.Sprintf("%064x\n%064x\n", 1, 2)
	do := func(line string) result {
		return hitline(t, hashes, append(strings.Fields(line), "--connect", address)...)
	}
	find := "lookup --tokens 32 --hashes-file -"
	assert.Equal(t, result{exitDone, "0\n", ""}, do(find))
	assert.Equal(t, exitDone, do("store --hashes-file -").code)
	assert.Equal(t, result{exitDone, "32\n", ""}, do(find))
	left, err := client.TTL(t.Context(), fmt.Sprintf("m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@%064x", 1)).Result()
	require.NoError(t, err)
	assert.InDelta(t, time.Hour.Seconds(), left.Seconds(), 60)
	assert.Equal(t, exitDone, do("reset --yes").code)
	assert.Equal(t, result{exitDone, "0\n", ""}, do(find))
}
