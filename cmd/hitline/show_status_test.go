package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/status"
)

// The page and the command have what /status has.
func TestStatusCommand(t *testing.T) {
	o := startServe(t, metricsHere+"pools: {a: {model_name: model-of-a}}\n")
	got := hitline(t, "", "status", o.metrics)
	require.Equal(t, exitDone, got.code, got.stderr)
	assert.True(t, strings.HasPrefix(got.stdout, "ready  hit share –"), got.stdout)
	assert.Contains(t, got.stdout, "model-of-a")
	got = hitline(t, "", "status", "--json", "http://"+o.metrics)
	var st status.Status
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &st))
	assert.True(t, st.Ready)

	code, page := o.send(t, "GET", "/", "")
	assert.Equal(t, 200, code)
	assert.Contains(t, page, "model-of-a")

	for args, want := range map[string]int{
		"127.0.0.1:1": exitNoConnection, "ftp://x": exitUsage, o.metrics + " -i 10ms": exitUsage, "--config " + configFile(t, "pool: {}\n"): exitUsage,
	} {
		got := hitline(t, "", append([]string{"status"}, strings.Fields(args)...)...)
		assert.Equal(t, want, got.code, "%s: %s", args, got.stderr)
		assert.NotEmpty(t, got.stderr)
	}
}
