package scale

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/bench/internal/process"
	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// asServer names the variable that makes this test binary hitline, and says what is
// wrong with it.
const asServer = "SCALE_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if fault := os.Getenv(asServer); fault != "" {
		serve(fault)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet's init starts some
}

// serve is a hitline that is told its loops, and does not evict.
func serve(fault string) {
	if fault == "ends" {
		fmt.Fprintln(os.Stderr, "cannot listen")
		os.Exit(1)
	}
	config := lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: blockTokens}}
	if fault == "evicts" {
		config.Memory.MaxEntries = 70
	}
	service, err := lookup.NewService(config)
	if err != nil {
		panic(err)
	}
	loops := 0
	for i, arg := range os.Args {
		if arg == "--loops" {
			_, _ = fmt.Sscan(os.Args[i+1], &loops)
		}
	}
	server, err := server.New(service, server.Config{Listen: []string{"tcp://127.0.0.1:0"}, Loops: loops})
	if err == nil {
		err = server.Start(context.Background())
	}
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"listen\":[%q]}\n", server.Addrs()[0])
	if name := os.Getenv("SCALE_TEST_RECORD"); name != "" { // what it was given
		cores, _ := process.Cores()
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(f, loops, cores)
	}
	<-server.Done()
	os.Exit(0)
}

func quick(t *testing.T, fault string) Options {
	t.Setenv(asServer, fault)
	return Options{
		Hitline: os.Args[0], Loops: []int{1, 2}, Connections: []int{1, 3}, Hashes: 10, Pipeline: 2, Entries: 100,
		Timeout: 20 * time.Second, count: 300,
	}
}

func TestRun(t *testing.T) {
	o := quick(t, "none")
	record := filepath.Join(t.TempDir(), "servers")
	t.Setenv("SCALE_TEST_RECORD", record)
	cores, err := process.Cores()
	require.NoError(t, err)
	set := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(set)
	runtime.SetDefaultGOMAXPROCS() // whatever the environment says: that is what Run goes back to
	procs := runtime.GOMAXPROCS(0)
	var steps []int
	o.OnStep = func(_ string, done, total int) {
		assert.Equal(t, 4, total)
		steps = append(steps, done)
	}
	for _, least := range []int{2, 1000} { // with cores of their own, if there are two, and without
		steps, o.leastCores = nil, least
		require.NoError(t, os.RemoveAll(record))
		r, err := Run(t.Context(), o)
		require.NoError(t, err)
		assert.Equal(t, []int{0, 1, 2, 3}, steps)
		shared := len(cores) < least
		assert.Equal(t, shared, r.Shared)
		require.Len(t, r.Points, 4)
		for i, p := range r.Points {
			assert.Equal(t, []int{1 + i/2, 1 + i%2*2}, []int{p.Loops, p.Connections})
			assert.GreaterOrEqual(t, p.Requests, o.count)
			assert.Positive(t, p.RequestsPerSecond)
			assert.Positive(t, p.P50us)
			assert.LessOrEqual(t, p.P50us, p.P99us)
		}
		require.Len(t, r.Peaks, 2)
		assert.InDelta(t, max(r.Points[0].RequestsPerSecond, r.Points[1].RequestsPerSecond), r.Peaks[0].RequestsPerSecond, 0)
		assert.Equal(t, shared, r.Slope == nil)
		assert.Zero(t, r.Wrong+r.Errors)
		assert.False(t, r.Partial)
		servers, err := os.ReadFile(record)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("1 %v\n2 %v\n", r.Server, r.Server), string(servers), "each has its loops and its cores")
		if !shared {
			assert.Equal(t, cores[:len(cores)/2], r.Client)
			assert.Equal(t, cores[len(cores)/2:], r.Server)
		}
		after, err := process.Cores()
		require.NoError(t, err)
		assert.Equal(t, cores, after, "no longer pinned")
		assert.Equal(t, procs, runtime.GOMAXPROCS(0))
		noServers(t)
	}
}

func TestBusyness(t *testing.T) {
	ready := func([]byte) (string, bool) { return "", true }
	p, err := process.Start(t.Context(), exec.Command("sh", "-c", "echo; while :; do :; done"),
		process.Options{Core: process.AnyCore, Timeout: 20 * time.Second, Ready: ready})
	require.NoError(t, err)
	defer p.Stop()
	var b busyness
	assert.Zero(t, b.cores())
	b.sample(p)
	assert.Zero(t, b.cores())
	require.Eventually(t, func() bool {
		used, err := p.CPU()
		return err == nil && used > b.first+20*time.Millisecond
	}, 20*time.Second, 5*time.Millisecond)
	b.sample(p)
	assert.Greater(t, b.last-b.first, 20*time.Millisecond)
	assert.Positive(t, b.cores())
	require.Eventually(t, func() bool { // the two clocks of a sample are read one after the other
		b.sample(p)
		return b.cores() < 1.5
	}, 20*time.Second, 5*time.Millisecond)
	assert.InDelta(t, b.cores(), float64(b.last-b.first)/float64(b.lastTime.Sub(b.firstTime)), 0.001)
}

// noServers fails if a server is left.
func noServers(t *testing.T) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, name := range stats {
		text, _ := os.ReadFile(name) // it may have ended
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 {
			assert.NotEqual(t, fmt.Sprint(os.Getpid()), fields[1], "%s", text)
		}
	}
}

func TestRunFaults(t *testing.T) {
	o := quick(t, "ends")
	r, err := Run(t.Context(), o)
	require.ErrorIs(t, err, load.ErrLost)
	assert.ErrorContains(t, err, "cannot listen")
	assert.Empty(t, r.Points)

	o = quick(t, "evicts")
	r, err = Run(t.Context(), o)
	require.NoError(t, err)
	assert.Positive(t, r.Wrong)
	assert.Positive(t, r.Points[0].Wrong)

	o = quick(t, "none")
	o.Connections = []int{1, load.MaxConnections}
	if o.Connections[1] > mostConnections() { // files are that scarce almost everywhere
		r, err = Run(t.Context(), o)
		require.ErrorContains(t, err, "1 loop, 60000 connections: ")
		assert.True(t, r.Partial)
		assert.Len(t, r.Points, 1)
	}
	noServers(t)
}

func TestRunCancelled(t *testing.T) {
	o := quick(t, "none")
	o.count, o.Duration = 0, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	o.OnStep = func(string, int, int) { time.AfterFunc(100*time.Millisecond, cancel) }
	r, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	assert.True(t, r.Partial)
	noServers(t)
}
