package main

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
)

// Pools that are described alike keep their services; the others get new ones. They share the memory of the index anew, so
// that all together have no more than before.
func TestReloadPools(t *testing.T) {
	const memory = "backend: {memory: {max_bytes: 64MiB}}\n"
	r := newTestReloader(t, memory+"pool: {tp_size: 1}\npools: {a: {}, b: {tp_size: 2}}\n")
	own, a, b := r.pools.own, r.pools.named[0].Service, r.pools.named[1].Service
	r.write(memory + "pool: {hash_block_size: 16}\npools: {a: {tp_size: 1}, b: {tp_size: 4}, c: {}, d: {}}\n")
	r.reload()
	lines := r.lines()
	require.Len(t, lines, 1, lines)
	assert.Equal(t, `level=INFO msg=reloaded changed="[pools.a pools.b pools.c pools.d]" pools_gone="[x (7 blocks)]"`, lines[0])
	assert.Same(t, own, r.pools.own, "the same pool in other words")
	assert.Same(t, a, r.pools.named[0].Service)
	assert.NotSame(t, b, r.pools.named[1].Service)
	var sum int64
	for _, pool := range r.srv.pools {
		sum += pool.Service.Stat().MaxBytes
	}
	assert.LessOrEqual(t, sum, int64(64<<20))
	assert.Greater(t, sum, int64(60<<20))

	r.write(strings.Replace(memory, "64", "66", 1) + "pool: {tp_size: 1}\npools: {a: {}}\n")
	r.reload()
	assert.Equal(t, `level=WARN msg="some changes need a restart" fields=[backend.memory.max_bytes]`, r.lines()[1])
	assert.EqualValues(t, 32<<20, own.Stat().MaxBytes, "half of what there was at the start")
}

// What pools that stay hold is not taken from them: new ones have what is left, and at least what an index needs.
func TestShareOfFullPools(t *testing.T) {
	const memory = "backend: {memory: {max_bytes: 8MiB}}\npool: {tp_size: 1}\n"
	r := newTestReloader(t, memory)
	keys := coordinator.NewHashes(lookuptest.Chain("k", 100_000, 32), 32)
	require.NoError(t, r.pools.own.Store(t.Context(), coordinator.GroupRank{}, keys))
	full := r.pools.own.Stat()
	r.write(memory + "pools: {a: {}}\n")
	r.reload()
	assert.Contains(t, r.lines()[0], `level=WARN msg="new pools have what the others leave of backend.memory.max_bytes, until a restart"`)
	assert.Equal(t, full.Entries, r.pools.own.Stat().Entries)
	assert.Greater(t, r.pools.own.Stat().MaxBytes, int64(4<<20), "more than its share")
	assert.GreaterOrEqual(t, r.pools.named[0].Service.Stat().MaxBytes, int64(index.MinMaxBytes))
	assert.Less(t, r.pools.named[0].Service.Stat().MaxBytes, int64(4<<20))
}

// The configuration is read when its file has changed, and is the same at two looks. A wrong one is logged once.
func TestPollOfTheConfiguration(t *testing.T) {
	r := newTestReloader(t, "{}\n")
	r.poll()
	assert.Empty(t, r.lines())
	write := func(yaml string) {
		require.NoError(t, os.WriteFile(r.file+".new", []byte(yaml), 0o600))
		require.NoError(t, os.Rename(r.file+".new", r.file))
	}
	write("limits: {max_hashes: 5}\n")
	r.poll()
	assert.Empty(t, r.lines(), "it may be being written")
	r.poll()
	assert.Equal(t, []string{`level=INFO msg=reloaded changed=[limits.max_hashes]`}, r.lines())
	r.poll()
	assert.Empty(t, r.lines())
	write("limits: {max_hashes: none}\n")
	for range 4 {
		r.poll()
	}
	lines := r.lines()
	require.Len(t, lines, 1, lines)
	assert.Contains(t, lines[0], "not reloaded")
	assert.Equal(t, []string{"limits"}, r.srv.take())
	r.write("limits: {max_hashes: 7}\n")
	r.reload() // by a signal
	r.lines()
	r.poll()
	r.poll()
	assert.Empty(t, r.lines(), "it has been read")
}

// A process over memory takes limits and pools from its changed file. What it holds of pools that stay is still found.
func TestReloadKeepsTheIndex(t *testing.T) {
	const base = "log: {format: json}\nlisten: ['tcp://127.0.0.1:0']\npool: {tp_size: 1}\n"
	file := configFile(t, base+"pools: {a: {}, b: {}}\n")
	cmd, reader, writer := startWith(t, "--config", file)
	require.NoError(t, writer.Close())
	log := bufio.NewScanner(reader)
	address := readyLine(t, log)
	hashes := strings.Repeat("ab", 32) + "\n" + strings.Repeat("cd", 32) + "\n"
	do := func(command, pool string) result {
		return hitline(t, hashes, append(strings.Fields(command), "--hashes-file", "-", "--connect", address, "--pool", pool)...)
	}
	for _, pool := range []string{"", "a", "b"} {
		require.Equal(t, result{exitDone, "stored 2\n", ""}, do("store", pool), pool)
	}
	require.NoError(t, os.WriteFile(file+".new", []byte(base+"pools: {a: {}, b: {tp_size: 2}, c: {}}\nlimits: {max_hashes: 1}\n"), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
	line := awaitLine(t, log, "reloaded")
	assert.Contains(t, line, `"changed":["limits.max_hashes","pools.b","pools.c"]`)
	assert.Contains(t, line, `"pools_gone":["b (2 blocks)"]`)
	assert.Contains(t, do("lookup --tokens 32", "a").stderr, "2 hashes, at most 1")
	hashes = hashes[:65]
	for pool, want := range map[string]string{"": "16\n", "a": "16\n", "b": "0\n", "c": "0\n"} {
		assert.Equal(t, result{exitDone, want, ""}, do("lookup --tokens 16", pool), "%q", pool)
	}
	require.NoError(t, cmd.Process.Kill())
}
