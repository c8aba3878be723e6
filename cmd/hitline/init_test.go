package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// serve reads what init writes for each use, without a warning. It is short, and of the newest release.
func TestInitUses(t *testing.T) {
	for _, use := range initUses {
		text := hitline(t, "", "init", "--for", use, "-").stdout
		got := hitline(t, "", "serve", "--check", "--config", configFile(t, text))
		assert.Equal(t, exitDone, got.code, got.stderr)
		assert.Empty(t, got.stderr, use)
		assert.Contains(t, got.stdout, `vllm: "`+coordinator.NewestRelease()+`"`)
		assert.Less(t, strings.Count(text, "\n"), 17, use)
	}
	got := hitline(t, "", "init", "--for", "redis")
	assert.Equal(t, result{exitUsage, "", "hitline: unknown use \"redis\"; --for is one of vllm-mooncake, router, memory\nhint: hitline init --help\n"}, got)
}

// init overwrites no file unless it is told to.
func TestInit(t *testing.T) {
	t.Chdir(t.TempDir())
	got := hitline(t, "", "init", "--for", "memory")
	assert.Equal(t, result{exitDone, "hitline.yaml written; edit it, then: hitline serve --config hitline.yaml --check\n", ""}, got)
	text, err := os.ReadFile("hitline.yaml")
	require.NoError(t, err)
	assert.Equal(t, result{exitDone, string(text), ""}, hitline(t, "", "init", "--for", "memory", "-"))
	assert.NoFileExists(t, "-")

	mine := []byte(strings.Repeat("# mine\n", 10_000))
	require.NoError(t, os.WriteFile("hitline.yaml", mine, 0o600))
	got = hitline(t, "", "init", "--json")
	assert.Equal(t, exitUsage, got.code)
	assert.JSONEq(t, `{"error": "hitline.yaml exists; give another name, or --force to overwrite it", "exit": 2}`, got.stdout)
	kept, err := os.ReadFile("hitline.yaml")
	require.NoError(t, err)
	assert.Equal(t, mine, kept)
	got = hitline(t, "", "init", "--force", "--json")
	assert.Equal(t, result{exitDone, `{"file":"hitline.yaml"}` + "\n", ""}, got)
	again, err := os.ReadFile("hitline.yaml")
	require.NoError(t, err)
	assert.Equal(t, hitline(t, "", "init", "-").stdout, string(again), "vllm-mooncake is the default")

	got = hitline(t, "", "init", filepath.Join("no", "such.yaml"))
	assert.Equal(t, result{exitUsage, "", "hitline: cannot write the configuration: open no/such.yaml: no such file or directory\n"}, got)
}

// What could not be written whole is not left behind, in the way of the next attempt.
func TestInitPart(t *testing.T) {
	cmd := programIn(t, "ulimit -f 0", "init")
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "hitline: cannot write the configuration: write hitline.yaml: ")
	assert.NoFileExists(t, filepath.Join(cmd.Dir, "hitline.yaml"))
}
