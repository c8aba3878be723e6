package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/bench/replay"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/lookup/client"
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

// fakeServer is an unbounded index without a socket.
type fakeServer struct {
	mu     sync.Mutex
	stored map[string]bool
	dialed int
	closed int
	calls  int                                          // lookups
	answer func(call int, right uint32) (uint32, error) // if set
	refuse func(ctx context.Context, addr string) error // if set, may refuse
}

func (s *fakeServer) dial(ctx context.Context, addr string, _ connectflags.Connection) (conn, error) {
	if s.refuse != nil {
		if err := s.refuse(ctx, addr); err != nil {
			return nil, err
		}
	}
	s.dialed++
	return s, nil
}

func (s *fakeServer) learn(context.Context) (workload.Pool, error) {
	return workload.Pool{BlockSize: 512}, nil
}

func (s *fakeServer) Close() error { s.closed++; return nil }

func (s *fakeServer) Lookup(_ context.Context, numTokens uint32, hashes []byte, hashLen int) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hit := 0
	for hit*hashLen < len(hashes) && s.stored[string(hashes[hit*hashLen:][:hashLen])] {
		hit++
	}
	right := uint32(0)
	if hit > 0 {
		right = uint32(hit) * numTokens / uint32(len(hashes)/hashLen)
	}
	s.calls++
	if s.answer != nil {
		return s.answer(s.calls, right)
	}
	return right, nil
}

func (s *fakeServer) Store(_ context.Context, keys []byte, hashLen int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored == nil {
		s.stored = map[string]bool{}
	}
	for at := 0; at < len(keys); at += hashLen {
		s.stored[string(keys[at:][:hashLen])] = true
	}
	return nil
}

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

func runWith(ctx context.Context, s *fakeServer, args ...string) result {
	var stdout, stderr bytes.Buffer
	a := app{stdout: &stdout, stderr: &stderr, dial: s.dial}
	code := a.run(ctx, args)
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

func TestReplayDone(t *testing.T) {
	s := &fakeServer{}
	r := runWith(t.Context(), s, "replay", "--trace", excerpt, "--json")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Empty(t, r.stderr, "no terminal, no bar")
	got := report(t, r)
	assert.EqualValues(t, 799, got.Requests)
	assert.EqualValues(t, 21951, got.Blocks)
	assert.EqualValues(t, 4144, got.HitBlocks)
	assert.Equal(t, excerpt, got.Trace)
	assert.Equal(t, []int{1, 1}, []int{s.dialed, s.closed})

	s = &fakeServer{refuse: func(_ context.Context, addr string) error {
		assert.Equal(t, "tcp://127.0.0.1:7557", addr)
		return nil
	}}
	r = runWith(t.Context(), s, "replay", "--trace", traceFile(t, small), "--requests", "2")
	assert.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "trace.jsonl\n")
	assert.Contains(t, r.stdout, "blocks       5\n")
	assert.Contains(t, r.stdout, "hit blocks   2, 40.0 %\n")
}

func TestReplayWrongUsage(t *testing.T) {
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
			s := &fakeServer{}
			r := runWith(t.Context(), s, tt.args...)
			assert.Equal(t, exitUsage, r.code)
			assert.Contains(t, r.stderr, "hitbench: "+tt.want)
			assert.Equal(t, 1, strings.Count(withoutHint(r.stderr), "\n"), "one line: %q", r.stderr)
			assert.Empty(t, r.stdout)
			assert.Zero(t, s.dialed, "nothing is stored before the input is good")
		})
	}
}

func TestReplayMismatch(t *testing.T) {
	lower := func(_ int, right uint32) (uint32, error) { return right / 1024 * 512, nil }
	args := []string{"replay", "--trace", excerpt, "--json"}
	r := runWith(t.Context(), &fakeServer{answer: lower}, args...)
	assert.Equal(t, exitBad, r.code)
	got := report(t, r)
	assert.Greater(t, got.Wrong, int64(maxDescribed))
	assert.EqualValues(t, 799, got.Requests)
	assert.Contains(t, r.stderr, "excerpt.jsonl:2: expected 512 hit tokens, got 0: below")
	assert.Equal(t, maxDescribed, strings.Count(r.stderr, "expected"))
	assert.Equal(t, 1, strings.Count(r.stderr, "further problems"))
	assert.Contains(t, r.stderr, fmt.Sprintf("hitbench: %d answers are wrong, 0 requests were refused; 799 requests were measured\n", got.Wrong))

	r = runWith(t.Context(), &fakeServer{answer: lower}, append(args, "--allow-evicted")...)
	assert.Equal(t, exitDone, r.code)
	assert.Empty(t, r.stderr)
	assert.Zero(t, report(t, r).Wrong)

	higher := func(_ int, right uint32) (uint32, error) { return right + 512, nil }
	r = runWith(t.Context(), &fakeServer{answer: higher}, append(args, "--allow-evicted")...)
	assert.Equal(t, exitBad, r.code)
	assert.EqualValues(t, 799, report(t, r).Wrong)
}

func TestReplayFailures(t *testing.T) {
	tests := map[string]struct {
		fails    error
		code     int
		requests int64
		stderr   string
	}{
		"refused":    {refusal(fmt.Errorf("%w: too long", client.ErrRefused)), exitBad, 3, "hitbench: 0 answers are wrong, 1 requests were refused; 3 requests were measured\n"},
		"bad answer": {errors.New("lookup: reply of 3 bytes"), exitBad, 1, ":2: lookup: lookup: reply of 3 bytes\n"},
		"lost":       {fmt.Errorf("%w: reset by peer", client.ErrConnect), exitLost, 1, ": reset by peer\n"},
		"no answer":  {fmt.Errorf("reading: %w", context.DeadlineExceeded), exitLost, 1, "no answer within 10s: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &fakeServer{answer: func(call int, right uint32) (uint32, error) {
				if call == 2 {
					return 0, tt.fails
				}
				return right, nil
			}}
			r := runWith(t.Context(), s, "replay", "--trace", traceFile(t, small), "--json")
			assert.Equal(t, tt.code, r.code)
			assert.Contains(t, r.stderr, tt.stderr)
			got := report(t, r)
			assert.Equal(t, tt.requests, got.Requests)
			assert.Equal(t, name == "refused", got.Refused == 1, "what is lost is not refused")
			assert.Equal(t, tt.requests < 3, got.Partial)
			assert.Equal(t, 1, s.closed)
		})
	}
}

func TestReplayNoConnection(t *testing.T) {
	s := &fakeServer{refuse: func(ctx context.Context, addr string) error {
		_, limited := ctx.Deadline()
		assert.True(t, limited)
		return fmt.Errorf("%w: refused", client.ErrConnect)
	}}
	r := runWith(t.Context(), s, "replay", "--trace", excerpt, "--connect", "tcp://h:1", "--json")
	assert.Equal(t, exitLost, r.code)
	assert.Contains(t, r.stderr, "hitbench: connecting to tcp://h:1: ")
	assert.Regexp(t, `^\{"error":"connecting to .*","exit":3\}\n$`, r.stdout)
}

func TestDialAddress(t *testing.T) {
	a := app{stdout: io.Discard, stderr: io.Discard, dial: dial}
	for addr, want := range map[string]int{"udp://127.0.0.1:1": exitUsage, "tcp://127.0.0.1:1": exitLost} {
		assert.Equal(t, want, a.run(t.Context(), []string{"replay", "--trace", excerpt, "--connect", addr}), addr)
	}
}

func TestReplayReportCannotBeWritten(t *testing.T) {
	var stderr bytes.Buffer
	a := app{stdout: brokenWriter{}, stderr: &stderr, dial: (&fakeServer{}).dial}
	assert.Equal(t, exitBad, a.run(t.Context(), []string{"replay", "--trace", traceFile(t, small)}))
	assert.Equal(t, "hitbench: cannot print the answer: disk full\n", stderr.String())
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// A variable that nobody reads is misspelt: hitbench would ask the default server.
func TestUnknownVariable(t *testing.T) {
	t.Setenv("HITLINE_ADDRESSES", "127.0.0.1:1")
	for _, args := range [][]string{{"replay", "--trace", excerpt}, {"version"}} {
		got := runWith(t.Context(), &fakeServer{}, args...)
		assert.Equal(t, exitUsage, got.code)
		assert.Equal(t, "hitbench: HITLINE_ADDRESSES: no such variable; did you mean HITLINE_ADDRESS?\n", got.stderr)
	}
}
