package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/bench/replay"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/fakeserver"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// asCommand names the environment variable that makes this test binary hitbench.
const asCommand = "HITBENCH_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		if len(os.Args) > 1 && os.Args[1] == "serve" {
			serveAsHitline()
		}
		main()
	}
	// gnet, which lookup imports, starts goroutines of its own in its init.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

const excerpt = "../../bench/testdata/conversation_excerpt.jsonl"

const (
	exitDone  = cli.ExitDone
	exitBad   = cli.ExitFailed
	exitUsage = cli.ExitUsage
	exitLost  = cli.ExitLost
)

const small = "{\"hash_ids\":[1,2]}\n{\"hash_ids\":[1,2,3]}\n{\"hash_ids\":[1]}\n"

// result is what a command left behind.
type result struct {
	code           int
	stdout, stderr string
}

// withoutHint returns what is on standard error without the last line, if that is the hint of wrong
// usage.
func withoutHint(stderr string) string {
	return regexp.MustCompile(`hint: hitbench( \w+)? --help\n$`).ReplaceAllString(stderr, "")
}

// hitbench runs a command line.
func hitbench(t *testing.T, args ...string) result {
	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr}
	code := a.run(t.Context(), args)
	return result{code, stdout.String(), stderr.String()}
}

// traceFile writes a trace, and returns its path.
func traceFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func report(t *testing.T, r result) replay.Report {
	t.Helper()
	require.Equal(t, 1, strings.Count(r.stdout, "\n"), "one line: %q", r.stdout)
	var got replay.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	return got
}

// pool512 is of a server whose hashes cover the ids of a trace.
var pool512 = lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 512}}

func TestReplayDone(t *testing.T) {
	r := hitbench(t, "replay", "--trace", excerpt, "--json", "--connect", serve(t, pool512).Addrs()[0])
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Empty(t, r.stderr, "no terminal, no bar")
	got := report(t, r)
	assert.EqualValues(t, 799, got.Requests)
	assert.EqualValues(t, 21951, got.Blocks)
	assert.EqualValues(t, 4144, got.HitBlocks)
	assert.Equal(t, excerpt, got.Trace)

	r = hitbench(t, "replay", "--trace", traceFile(t, small), "--requests", "2", "--connect", serve(t, pool512).Addrs()[0])
	assert.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "trace.jsonl\n")
	assert.Contains(t, r.stdout, "blocks       5\n")
	assert.Contains(t, r.stdout, "hit blocks   2, 40.0 %\n")
}

func TestReplayWrongUsage(t *testing.T) {
	t.Setenv("HITLINE_ADDRESS", "tcp://127.0.0.1:1")
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	require.NoError(t, os.WriteFile(bad, []byte(small+"{\"hash_ids\":[-1]}\n"), 0o600))
	missing := filepath.Join(dir, "missing.jsonl")
	tests := map[string]struct {
		args []string
		want string
	}{
		"no such command": {[]string{"reply"}, `unknown command "reply"; did you mean replay?`},
		"no trace":        {[]string{"replay"}, "--trace is required"},
		"no such flag":    {[]string{"replay", "--trase", excerpt}, "unknown flag: --trase; did you mean --trace?"},
		"a list":          {[]string{"run", "--connect", "a,b"}, `--connect: "a,b" is a list, and one server is asked; give its address by --connect`},
		"an address":      {[]string{"run", "tcp://127.0.0.1:7557"}, `unexpected argument "tcp://127.0.0.1:7557"; give it as --connect`},
		"a trace":         {[]string{"replay", excerpt}, "unexpected argument \"" + excerpt + "\"; give it as --trace"},
		"an argument":     {[]string{"replay", "--trace", excerpt, "x"}, `unexpected argument "x"`},
		"not a number":    {[]string{"replay", "--trace", excerpt, "--requests", "x"}, `invalid argument "x" for "-n, --requests" flag: write a whole number`},
		"not numbers":     {[]string{"compare", "--hashes", "x"}, `invalid argument "x" for "--hashes" flag: write whole numbers, such as 1,64`},
		"limit":           {[]string{"replay", "--trace", excerpt, "--requests", "-1"}, "-1 requests"},
		"timeout":         {[]string{"replay", "--trace", excerpt, "--timeout", "0s"}, "a timeout of 0s"},
		"missing file":    {[]string{"replay", "--trace", missing}, "bad trace: stat " + missing + ": no such file"},
		"a directory":     {[]string{"replay", "--trace", dir}, "bad trace: " + dir + " is no regular file; name a file of JSON lines"},
		"malformed":       {[]string{"replay", "--trace", bad}, "bad trace: " + bad + ":4: hash_ids has a JSON number -1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := hitbench(t, tt.args...)
			assert.Equal(t, exitUsage, r.code, "nothing is asked before the input is good")
			assert.Contains(t, r.stderr, "hitbench: "+tt.want)
			assert.Equal(t, 1, strings.Count(withoutHint(r.stderr), "\n"), "one line: %q", r.stderr)
			assert.Empty(t, r.stdout)
		})
	}
}

// A server that evicts answers below the model, and one that had blocks before above it.
func TestReplayMismatch(t *testing.T) {
	bounded := pool512
	bounded.Memory = index.Config{MaxEntries: 1000}
	replay := func(addr string, more ...string) result {
		return hitbench(t, append([]string{"replay", "--trace", excerpt, "--json", "--connect", addr}, more...)...)
	}
	r := replay(serve(t, bounded).Addrs()[0])
	assert.Equal(t, exitBad, r.code)
	got := report(t, r)
	assert.Greater(t, got.Wrong, int64(maxDescribed))
	assert.EqualValues(t, 799, got.Requests)
	assert.Equal(t, maxDescribed, strings.Count(r.stderr, ": below what was stored; if the index is bounded, give --allow-evicted\n"))
	assert.Equal(t, 1, strings.Count(r.stderr, "further problems"))
	assert.Contains(t, r.stderr, fmt.Sprintf("hitbench: %d answers are wrong, 0 requests were refused; 799 requests were measured\n", got.Wrong))

	addr := serve(t, bounded).Addrs()[0]
	r = replay(addr, "--allow-evicted")
	assert.Equal(t, exitDone, r.code)
	assert.Empty(t, r.stderr)
	assert.Zero(t, report(t, r).Wrong)
	r = replay(addr, "--allow-evicted")
	assert.Equal(t, exitBad, r.code)
	assert.Contains(t, r.stderr, ": above what was stored; was the index empty at the start?\n")
}

// What a server does to the second request of a trace.
func TestReplayFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		reply    []byte // nil: the connection is closed
		code     int
		requests int64
		stderr   string
	}{
		"refused": {
			netproto.AppendRefusal(nil, nil, netproto.StatusFailed, "too long", nil), exitBad, 3,
			"hitbench: 0 answers are wrong, 1 requests were refused; 3 requests were measured\n",
		},
		"bad answer": {netproto.AppendFrame(nil, []byte("bad"), false), exitBad, 1, ":2: lookup: "},
		"lost":       {nil, exitLost, 1, ":2: lookup: "},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			hits := []uint32{1024, 1024, 0, 0, 512} // of what connect asks, and of three requests
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			fakeserver.Serve(t, listener, func(conn net.Conn) {
				fakeserver.Answer(conn, func(frames [][]byte) []byte {
					if string(frames[0]) != "lookup" {
						return netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, []byte("{}"), false))
					}
					call := calls.Add(1)
					if call == 4 || call > 4 && tt.requests < 3 { // the client may ask again
						return tt.reply
					}
					return netproto.AppendHit(nil, nil, hits[call-1])
				})
			})
			r := hitbench(t, "replay", "--trace", traceFile(t, small), "--json", "--connect", listener.Addr().String())
			assert.Equal(t, tt.code, r.code, r.stderr)
			assert.Contains(t, r.stderr, tt.stderr)
			got := report(t, r)
			assert.Equal(t, tt.requests, got.Requests)
			assert.Equal(t, name == "refused", got.Refused == 1, "what is lost is not refused")
			assert.Equal(t, tt.requests < 3, got.Partial)
		})
	}
}

func TestReplayNoConnection(t *testing.T) {
	r := hitbench(t, "replay", "--trace", excerpt, "--connect", "tcp://127.0.0.1:1", "--json")
	assert.Equal(t, exitLost, r.code)
	assert.Regexp(t, `^\{"error":"no server at tcp://127.0.0.1:1 .*","exit":3\}\n$`, r.stdout)
	assert.Equal(t, exitUsage, hitbench(t, "replay", "--trace", excerpt, "--connect", "udp://127.0.0.1:1").code)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// A variable that nobody reads is misspelt: hitbench would ask the default server.
func TestUnknownVariable(t *testing.T) {
	t.Setenv("HITLINE_ADDRESSES", "127.0.0.1:1")
	for _, args := range [][]string{{"replay", "--trace", excerpt}, {"version"}} {
		got := hitbench(t, args...)
		assert.Equal(t, exitUsage, got.code)
		assert.Equal(t, "hitbench: HITLINE_ADDRESSES: no such variable; did you mean HITLINE_ADDRESS?\n", got.stderr)
	}
}
