package compare

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/internal/storetest"
)

// faked returns options whose servers are this binary, and whose Python has a fault.
func faked(t *testing.T, fault string) Options {
	t.Setenv(asServer, fault)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else a server that ends takes a second for it
	o := small()
	o.Hitline = os.Args[0]
	o.Python = os.Args[0]
	o.RawServer = []string{os.Args[0], "raw-server"}
	return o
}

// noChildren asserts that no process is left that was started here, not even one
// that has ended and was not waited for.
func noChildren(t *testing.T) {
	t.Helper()
	_, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	assert.Equal(t, unix.ECHILD, err)
}

// judge checks a report in which everything was right.
func judge(t *testing.T, o Options, r Report, rivals []string) {
	t.Helper()
	assert.Zero(t, r.Wrong)
	assert.False(t, r.Partial)
	assert.Equal(t, 20*300+400, r.Entries)
	var got, want []string
	for _, hashes := range o.Hashes {
		for _, rival := range rivals {
			want = append(want, fmt.Sprintf("%s %d", rival, hashes))
		}
	}
	for _, row := range r.Rows {
		name := fmt.Sprintf("%s %d", row.Rival, row.Hashes)
		got = append(got, name)
		assert.Zero(t, row.Wrong, name)
		assert.NotEmpty(t, row.Version, name)
		assert.LessOrEqual(t, row.P50, row.P99, name)
		assert.LessOrEqual(t, row.P99, row.Max, name)
		assert.GreaterOrEqual(t, row.Requests, o.Rounds, name)
		for _, figure := range []float64{row.Times.Rounds.Min, row.Ratio.Median, row.Ratio.Min} {
			assert.Positive(t, figure, name)
		}
		assert.LessOrEqual(t, row.Times.Rounds.Min, row.Times.Rounds.Max, name)
		assert.LessOrEqual(t, row.Ratio.Min, row.Ratio.Max, name)
		if slices.Contains(rivals, RawSocket) {
			assert.Positive(t, row.ToRaw.Median, name)
		}
		if row.Rival == Hitline {
			assert.Equal(t, measure.Spread{Median: 1, Min: 1, Max: 1}, row.Ratio)
		}
	}
	assert.Equal(t, want, got)
}

// fakedRivals are those whose servers and clients this binary can be.
var fakedRivals = []string{RawSocket, Hitline, HitlineZMTP, PythonBare, Python}

// What needs nothing but this binary.
func TestRun(t *testing.T) {
	allowed, err := process.Cores()
	require.NoError(t, err)
	o := faked(t, "none")
	o.Only = fakedRivals
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	judge(t, o, r, fakedRivals)
	noChildren(t)
	if len(allowed) > 1 {
		assert.Equal(t, allowed[:1], r.Placement.Client)
		assert.NotContains(t, r.Placement.Server, allowed[0])
	}
	assert.EqualValues(t, 1, r.Setup.Seed)
	for _, row := range r.Rows {
		if row.Rival == Hitline {
			assert.Equal(t, "fake 1.2", row.Version)
		}
	}
	after, err := process.Cores()
	require.NoError(t, err)
	assert.Equal(t, allowed, after, "no longer pinned")
	percent := debug.SetGCPercent(100)
	debug.SetGCPercent(percent)
	assert.Positive(t, percent, "garbage is collected again")
}

// TestRivals runs the real ones that this machine has.
func TestRivals(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Python")
	}
	o := faked(t, "none")
	o.Python = storetest.PyzmqPython(t)
	if _, err := exec.LookPath("redis-server"); err != nil {
		storetest.SkipOrFail(t, "no redis-server on this machine (Debian: redis-server)")
	}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	noChildren(t)
	judge(t, o, r, Rivals())
	assert.Empty(t, r.Skipped)
	for _, row := range r.Rows {
		switch row.Rival {
		case Python:
			assert.Regexp(t, `^Python 3\.\S+, pyzmq 27\.3\.0, libzmq 4\.\S+$`, row.Version)
		case RedisExists:
			assert.Regexp(t, `^Redis \d\S+$`, row.Version)
		}
	}
}

// Wrong answers are counted and told of; the others' rows are as they should be.
func TestRunWrong(t *testing.T) {
	o := faked(t, "wrong")
	o.Only, o.HitShare = []string{RawSocket, Python}, 1
	var notes []string
	o.OnNote = func(text string) { notes = append(notes, text) }
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	wrong := 0
	for _, row := range r.Rows {
		if row.Rival == Python {
			assert.Greater(t, row.Wrong, row.Requests, "those of the warm-up too")
		} else {
			assert.Zero(t, row.Wrong, row.Rival)
		}
		wrong += row.Wrong
	}
	assert.Positive(t, wrong)
	assert.Equal(t, wrong, r.Wrong)
	assert.Contains(t, notes, "wrong: python-zmq, 20 hashes, request 14: expected 320 hit tokens, got 160")
}

// What is not here is left out with words, unless it was asked for.
func TestRunMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	o := faked(t, "none")
	o.Hashes, o.Python = []int{20}, ""
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Len(t, r.Rows, 3)
	assert.Equal(t, []Skipped{
		{PythonBare, "python3 is neither beside this program nor on PATH; apt-get install python3-zmq"},
		{Python, "python3 is neither beside this program nor on PATH; apt-get install python3-zmq"},
		{RedisSMIsMember, "redis-server is neither beside this program nor on PATH; apt-get install redis-server"},
		{RedisExists, "redis-server is neither beside this program nor on PATH; apt-get install redis-server"},
	}, r.Skipped)

	o.Only = []string{RedisExists}
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrLost)
	require.ErrorContains(t, err, "missing: redis-server is neither beside this program nor on PATH")

	broken := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho 'No module named zmq' >&2\nexit 1\n"), 0o700))
	o.Only, o.Python = nil, broken
	r, err = Run(t.Context(), o)
	require.NoError(t, err)
	assert.Contains(t, r.Skipped, Skipped{Python, "cannot import zmq: " + broken + ": exit status 1: No module named zmq; python3 -m pip install pyzmq, or name a Python that has it with --python"})
}

func TestRunBadHitline(t *testing.T) {
	o := faked(t, "none")
	o.Hitline = "/no/such"
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrLost)
	noChildren(t)
	o.Hashes = nil
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrOptions)
}

// What only some rivals have: pipelined rounds.
func TestRunPipelined(t *testing.T) {
	o := faked(t, "none")
	o.Only, o.requests, o.Pipeline, o.Rotate = []string{RawSocket, HitlineZMTP}, 70, 7, 1<<9
	var phases []string
	o.OnStep = func(phase string, _, _ int) { phases = append(phases, phase) }
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	noChildren(t)
	judge(t, o, r, []string{RawSocket, Hitline, HitlineZMTP})
	assert.Contains(t, phases, "300 hashes: pipelined")
	assert.EqualValues(t, 1<<9, r.RotateBytes)
	for _, row := range r.Rows {
		name := row.Rival
		assert.Equal(t, 3*70, row.Requests)
		pipelined := row.Rival != HitlineZMTP
		assert.Equal(t, pipelined, row.Rate.Median > 0, name)
		assert.Equal(t, pipelined, row.RateToRaw.Median > 0, name)
	}
}

// The raw server answers when the last byte of a request has come, however the
// bytes come, and every request.
func TestRawServer(t *testing.T) {
	t.Setenv(asServer, "none")
	p, err := process.Start(t.Context(), exec.Command(os.Args[0], "raw-server", "1500"), process.Options{Timeout: 20 * time.Second})
	require.NoError(t, err)
	defer p.Stop()
	conn, err := net.Dial("tcp", p.Addr()[len("tcp://"):])
	require.NoError(t, err)
	defer conn.Close()
	sent, got := 0, 0
	b := make([]byte, 100)
	for _, n := range []int{1, 1498, 1, 1500, 4499, 1, 7500} {
		_, err := conn.Write(make([]byte, n))
		require.NoError(t, err)
		sent += n
		for got < sent/1500*hitLen {
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			n, err := conn.Read(b)
			require.NoError(t, err)
			got += n
		}
		require.Equal(t, sent/1500*hitLen, got)
	}
}
