package main

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// The server is asked for its block size.
func TestReplayLearnsBlockSize(t *testing.T) {
	for name, test := range map[string]struct {
		pool   coordinator.Pool
		code   int
		stderr string
	}{
		"16":              {coordinator.Pool{HashBlockSize: 16}, exitDone, ""},
		"512":             {coordinator.Pool{HashBlockSize: 512}, exitDone, ""},
		"16 of vLLM 0.33": {coordinator.Pool{VLLM: coordinator.NewestRelease(), HashBlockSize: 16}, exitDone, ""},
		"24":              {coordinator.Pool{HashBlockSize: 24}, exitUsage, "a hash covers 24 tokens at the server; a trace needs a number that divides 512"},
		"two groups": {coordinator.Pool{HashBlockSize: 16, Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64},
		}}, exitUsage, "give one whose pool has one full-attention group"},
	} {
		t.Run(name, func(t *testing.T) {
			service, err := lookup.NewService(lookup.ServiceConfig{Pool: test.pool})
			require.NoError(t, err)
			srv, err := server.New(service, server.Config{Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}})
			require.NoError(t, err)
			require.NoError(t, srv.Start(t.Context()))
			defer func() { _ = srv.Shutdown(context.Background()) }()
			var stdout, stderr bytes.Buffer
			a := app{stdout: &stdout, stderr: &stderr, dial: dial}
			code := a.run(t.Context(), []string{"replay", "--connect", srv.Addrs()[0], "--trace", excerpt, "-n", "50", "--json"})
			require.Equal(t, test.code, code, stderr.String())
			assert.Contains(t, stderr.String(), test.stderr)
			if code == exitDone {
				got := report(t, result{stdout: stdout.String()})
				assert.Equal(t, strings.Fields(name)[0], strconv.Itoa(got.BlockSize))
				assert.EqualValues(t, 50, got.Requests)
			}
			if strings.Contains(name, "vLLM") {
				var stderr bytes.Buffer
				a := app{stdout: io.Discard, stderr: &stderr, dial: dial}
				assert.Equal(t, exitDone, a.run(t.Context(), []string{"run", "--connect", srv.Addrs()[0], "--entries", "100", "-n", "10"}), stderr.String())
			}
		})
	}
}
