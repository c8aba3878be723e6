package config

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// The file gives way to the environment, and both to the flags.
func TestPrecedence(t *testing.T) {
	file := write(t, "listen: [tcp://a:1]\nloops: 1\npool: {hash_block_size: 4, groups: [{kind: mamba, block_size: 4}], use_eagle: true}\ndrain_timeout: 1s\n")
	environ := []string{"HITLINE_LISTEN=tcp://b:1,tcp://c:1", "HITLINE_LOOPS=2", "HITLINE_POOL_HASH_BLOCK_SIZE=8", "HITLINE_POOL_GROUPS=[{kind: mamba, block_size: 8}]"}
	loops, block, backend := 3, 32, "memory"

	c, err := Load(Source{File: file})
	require.NoError(t, err)
	assert.Equal(t, Listeners("tcp://a:1"), c.Listen)
	assert.Equal(t, []int{1, 4}, []int{c.Loops, c.Pool.HashBlockSize})

	c, err = Load(Source{File: file, Environ: environ})
	require.NoError(t, err)
	assert.Equal(t, Listeners("tcp://b:1", "tcp://c:1"), c.Listen)
	assert.Equal(t, []int{2, 8}, []int{c.Loops, c.Pool.HashBlockSize})
	assert.Equal(t, Duration(1e9), c.DrainTimeout)

	c, err = Load(Source{File: file, Environ: environ, Flags: Flags{
		Listen: []string{"tcp://d:1"}, Loops: &loops, BlockSize: &block, Backend: &backend,
	}})
	require.NoError(t, err)
	assert.Equal(t, Listeners("tcp://d:1"), c.Listen)
	assert.Equal(t, []int{3, 32, 32}, []int{c.Loops, c.Pool.HashBlockSize, c.Pool.SchedulerBlockSize})
	assert.Equal(t, []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 32}}, c.Pool.Groups)
	assert.True(t, c.Pool.UseEagle, "the rest of the pool stays")
	for _, path := range []string{"pool.hash_block_size", "pool.scheduler_block_size", "pool.groups[0].block_size"} {
		assert.Equal(t, "--block-size", c.origins.find(path).String())
	}
}

func TestFlagErrors(t *testing.T) {
	type flagError struct {
		name  string
		flags Flags
		want  string
	}
	tests := []flagError{
		{"listen", Flags{Listen: []string{"tcp://a:1", "a"}}, `--listen: listen[1]: "a": missing port in address; write tcp://host:port, an IPv6 address in brackets`},
		{"loops", Flags{Loops: new(-1)}, `--loops: loops: -1 is too small, must be at least 0`},
		{"block size", Flags{BlockSize: new(0)}, `--block-size: 0 is not a number of tokens, must be 1 or more`},
		{"backend", Flags{Backend: new("redis")}, `--backend: backend.redis.url: is missing; give the server's, such as redis://127.0.0.1:6379, here or in HITLINE_BACKEND_REDIS_URL`},
		{"unknown backend", Flags{Backend: new("")}, `--backend: unknown backend ""; use memory, redis or mooncake`},
	}
	if large := int64(1) << 40; large <= math.MaxInt { // otherwise the flag's own type refuses it
		tests = append(tests, flagError{"block size too large", Flags{BlockSize: new(int(large))}, `--block-size: pool.hash_block_size: hash_block_size is 1099511627776, want 1 to 2147483647`})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Load(Source{Flags: test.flags})
			assert.EqualError(t, err, test.want)
		})
	}
}

// An origin that a later source overrode is not blamed.
func TestOriginIsOfTheLastSource(t *testing.T) {
	file := write(t, "listen: [tcp://a:1, tcp://b:1]\npool: {groups: [{kind: mamba, block_size: 16}]}\n")
	_, err := Load(Source{File: file, Flags: Flags{Listen: []string{"tcp://a:1", "b"}}})
	require.EqualError(t, err, `--listen: listen[1]: "b": missing port in address; write tcp://host:port, an IPv6 address in brackets`)
	_, err = Load(Source{File: file, Environ: []string{"HITLINE_POOL_GROUPS=[{kind: mamba}]"}})
	require.EqualError(t, err, `HITLINE_POOL_GROUPS:1:2: pool.groups[0]: block_size is 0, want 1 to 2147483647`)

	// A section of a later source leaves the fields that it does not name where they were.
	file = write(t, "limits: {max_connections: 0}\npool: {tp_size: -1}\n")
	_, err = Load(Source{File: file, Environ: []string{"HITLINE_LIMITS={max_hashes: 5}"}})
	require.EqualError(t, err, file+":1:27: limits.max_connections: 0 is too small, must be at least 1")
}
