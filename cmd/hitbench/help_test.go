package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/internal/clitest"
)

// runHitbench is hitbench as package clitest takes it.
func runHitbench(t *testing.T) clitest.Run {
	return func(args ...string) (code int, stdout, stderr string) {
		r := hitbench(t, args...)
		return r.code, r.stdout, r.stderr
	}
}

func TestHelp(t *testing.T) { clitest.CheckHelp(t, new(app).rootCommand(), runHitbench(t)) }

func TestJSONFailures(t *testing.T) {
	clitest.CheckJSONFailures(t, new(app).rootCommand(), runHitbench(t))
	r := hitbench(t, "replay", "--trace", "/no/such", "--json")
	assert.Regexp(t, `^\{"error":"bad trace: .*","exit":2\}\n$`, r.stdout)
}

func TestAddressOfTheEnvironment(t *testing.T) {
	t.Setenv("HITLINE_ADDRESS", "tcp://127.0.0.1:1")
	for _, line := range []string{"replay --trace " + excerpt, "run"} {
		r := hitbench(t, strings.Fields(line)...)
		assert.Equal(t, exitLost, r.code, line)
		assert.Regexp(t, `127\.0\.0\.1:1\b.*connection refused`, r.stderr, line)
	}
	t.Setenv("HITLINE_ADDRESS", "127.0.0.1:0")
	for _, line := range []string{"replay --trace " + excerpt, "run"} {
		r := hitbench(t, strings.Fields(line)...)
		assert.Equal(t, exitUsage, r.code, line)
		assert.Contains(t, r.stderr, `hitbench: HITLINE_ADDRESS: "127.0.0.1:0" has port 0`, line)
	}
	r := hitbench(t, "run", "--connect", "tcp://127.0.0.1:2")
	require.Contains(t, r.stderr, "127.0.0.1:2 (connection refused)", "the flag counts first")
}

// Shells complete what a flag or an argument may be.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"compare --only ": "raw hitline hitline-zmtp python-zmq-bare python-zmq redis-smismember redis-exists",
	} {
		r := hitbench(t, strings.Split("__complete "+line, " ")...)
		assert.Equal(t, strings.Fields(want+" :4"), strings.Fields(r.stdout), line)
	}
}
