package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/bench/load/loadtest"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

func TestReplayAnchored(t *testing.T) {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}, Memory: index.Config{MaxEntries: 200_000}})
	require.NoError(t, err)
	srv, err := server.New(service, server.Config{Listen: []string{"tcp://127.0.0.1:0"}})
	require.NoError(t, err)
	require.NoError(t, srv.Start(t.Context()))
	defer func() { _ = srv.Shutdown(context.Background()) }()

	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr, dial: dial}
	args := []string{"replay", "--connect", srv.Addrs()[0], "--trace", excerpt, "--block-size", "16", "--allow-evicted", "--anchored"}
	require.Equal(t, exitDone, a.run(t.Context(), append(args, "--json")), stderr.String())
	got := report(t, result{stdout: stdout.String()})
	assert.EqualValues(t, 799, got.Requests)
	assert.Zero(t, got.Wrong)
	require.NotNil(t, got.Anchored)
	assert.Greater(t, got.Anchored.FullBytes, int64(21951*32*32), "all hashes, and what is around them")
	assert.Greater(t, got.Anchored.Fewer, 10.0)

	assert.Equal(t, exitUsage, a.run(t.Context(), append(args, "-c", "2")))
}

// Without --block-size the server is asked.
func TestReplayLearnsBlockSize(t *testing.T) {
	for name, test := range map[string]struct {
		pool   coordinator.Pool
		code   int
		stderr string
	}{
		"16":              {coordinator.Pool{HashBlockSize: 16}, exitDone, ""},
		"512":             {coordinator.Pool{HashBlockSize: 512}, exitDone, ""},
		"16 of vLLM 0.33": {coordinator.Pool{VLLM: "0.33.0", HashBlockSize: 16}, exitDone, ""},
		"24":              {coordinator.Pool{HashBlockSize: 24}, exitUsage, "a hash covers 24 tokens at the server; a trace needs a number that divides 512"},
		"two groups": {coordinator.Pool{HashBlockSize: 16, Groups: []coordinator.Group{
			{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64},
		}}, exitBad, "needs a server of one full-attention group"},
	} {
		t.Run(name, func(t *testing.T) {
			service, err := lookup.NewService(lookup.ServiceConfig{Pool: test.pool})
			require.NoError(t, err)
			srv, err := server.New(service, server.Config{Listen: []string{"tcp://127.0.0.1:0"}})
			require.NoError(t, err)
			require.NoError(t, srv.Start(t.Context()))
			defer func() { _ = srv.Shutdown(context.Background()) }()
			for _, more := range [][]string{nil, {"--anchored"}} {
				require.NoError(t, service.Reset(t.Context()))
				var stdout, stderr bytes.Buffer
				a := app{stdout: &stdout, stderr: &stderr, dial: dial}
				code := a.run(t.Context(), append([]string{"replay", "--connect", srv.Addrs()[0], "--trace", excerpt, "-n", "50", "--json"}, more...))
				require.Equal(t, test.code, code, stderr.String())
				assert.Contains(t, stderr.String(), test.stderr)
				if code == exitDone {
					got := report(t, result{stdout: stdout.String()})
					assert.Equal(t, strings.Fields(name)[0], strconv.Itoa(got.BlockSize))
					assert.EqualValues(t, 50, got.Requests)
				}
			}
			if strings.Contains(name, "vLLM") {
				var stderr bytes.Buffer
				a := app{stdout: io.Discard, stderr: &stderr, dial: dial}
				assert.Equal(t, exitUsage, a.run(t.Context(), []string{"run", "--connect", srv.Addrs()[0], "--entries", "100", "-n", "10"}))
				assert.Contains(t, stderr.String(), "describe the server's pool")
			}
		})
	}
}

func TestRunAnchored(t *testing.T) {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	require.NoError(t, err)
	srv, err := server.New(service, server.Config{Listen: []string{"tcp://127.0.0.1:0"}})
	require.NoError(t, err)
	require.NoError(t, srv.Start(t.Context()))
	defer func() { _ = srv.Shutdown(context.Background()) }()

	args := []string{"--anchored", "-n", "300", "-c", "3", "--hashes", "200-400", "--hit-share", "0.5", "--json"}
	r := runLoad(t.Context(), append(args, "--connect", srv.Addrs()[0])...)
	require.Equal(t, exitDone, r.code, r.stderr)
	var got load.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	assert.True(t, got.Anchored)
	assert.Equal(t, []int64{300, 0, 0}, []int64{got.Requests, got.Wrong, got.Refused})
	assert.GreaterOrEqual(t, srv.Stat().Anchored, int64(300))
	assert.Positive(t, srv.Stat().AnchoredUndetermined)

	for fault, want := range map[loadtest.Fault]int{
		loadtest.OffByOne: exitBad, loadtest.Forgets: exitBad, loadtest.Refuses: exitBad, loadtest.Closes: exitLost,
	} { // servers that do not know anchors, and are asked by all hashes
		addr := faulty(t, &loadtest.Server{Fault: fault, Honest: 5})
		r := runLoad(t.Context(), "--anchored", "-n", "100", "--hashes", "20", "--connect", addr)
		assert.Equal(t, want, r.code, "%s: %s", fault, r.stderr)
	}
	for _, more := range [][]string{{"--rate", "10"}, {"--pipeline", "2"}, {"--dialect", "zmtp"}, {"--stores", "0.1"}} {
		assert.Equal(t, exitUsage, runLoad(t.Context(), append(args, more...)...).code)
	}
}
