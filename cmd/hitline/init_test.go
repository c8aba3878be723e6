package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What init writes is read by serve, and is the defaults.
func TestInit(t *testing.T) {
	defaults := hitline(t, "", "serve", "--check")
	require.Equal(t, exitDone, defaults.code)

	t.Chdir(t.TempDir())
	got := hitline(t, "", "init")
	assert.Equal(t, result{exitDone, "hitline.yaml written; now: hitline serve --config hitline.yaml --check --explain\n", ""}, got)
	assert.Equal(t, defaults, hitline(t, "", "serve", "--check", "--config", "hitline.yaml"))
	text, err := os.ReadFile("hitline.yaml")
	require.NoError(t, err)
	assert.Equal(t, result{exitDone, string(text), ""}, hitline(t, "", "init", "-"))
	assert.NoFileExists(t, "-")

	// One that exists is only overwritten if that is asked for.
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
	assert.Equal(t, string(text), string(again))

	got = hitline(t, "", "init", filepath.Join("no", "such.yaml"))
	assert.Equal(t, result{exitUsage, "", "hitline: cannot write the configuration: open no/such.yaml: no such file or directory\n"}, got)
}

// With --backend its section is in effect, and nothing else.
func TestInitBackend(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"memory", "redis", "mooncake"} {
		require.Equal(t, exitDone, hitline(t, "", "init", "--backend", name, name+".yaml").code)
		got := hitline(t, "", "serve", "--check", "--explain", "--json", "--config", name+".yaml")
		require.Equal(t, exitDone, got.code, got.stderr)
		var values []struct{ Path, Origin string }
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &values))
		for _, v := range values {
			if strings.HasPrefix(v.Path, "backend.") {
				assert.True(t, strings.HasPrefix(v.Path, "backend."+name+".") && strings.HasPrefix(v.Origin, name+".yaml:"), "%v", v)
			} else {
				assert.Contains(t, []string{"default", "derived"}, v.Origin, v.Path)
			}
		}
	}
}

// What could not be written whole is not left behind, in the way of the next attempt.
func TestInitPart(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command("sh", "-c", `ulimit -f 1; exec "$0" init`, self) // 1 KiB at most, or half of it
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "hitline: cannot write the configuration: write hitline.yaml: ")
	assert.NoFileExists(t, filepath.Join(cmd.Dir, "hitline.yaml"))
}
