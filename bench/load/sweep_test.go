package load

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience is far more than anything here takes.
const patience = 20 * time.Second

// asServer names the variable that makes this test binary hitline, and says what is
// wrong with it.
const asServer = "LOAD_TEST_AS_SERVER"

// serveAsHitline is a hitline that is told its loops, and does not evict.
func serveAsHitline(fault string) {
	if fault == "ends" {
		fmt.Fprintln(os.Stderr, "cannot listen")
		os.Exit(1)
	}
	config := lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}}
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
	// What it was given is recorded before it is ready: then the next server may start.
	if name := os.Getenv("LOAD_TEST_RECORD"); name != "" {
		cores, _ := process.Cores()
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(f, loops, cores)
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"listen\":[%q]}\n", server.Addrs()[0])
	<-server.Done()
	os.Exit(0)
}

func quickSweep(t *testing.T, fault string) SweepOptions {
	t.Setenv(asServer, fault)
	client, server, err := Halves()
	require.NoError(t, err)
	return SweepOptions{
		Load: Options{
			Hashes: Lengths{Least: 10, Most: 10}, HitShare: 1, Pipeline: 2, Entries: 100, Timeout: patience, Seed: 1, Requests: 300, Warmup: time.Millisecond,
			ClientCores: client, ServerCores: server,
		},
		Server: ServerOptions{Hitline: os.Args[0]}, Loops: []int{1, 2}, Connections: []int{1, 3}, Rounds: 2,
	}
}

// onOneCore lets this process run on one core only until the test ends.
func onOneCore(t *testing.T) {
	cores, err := process.Cores()
	require.NoError(t, err)
	require.NoError(t, process.Pin(cores[0]))
	t.Cleanup(func() { require.NoError(t, process.Pin(cores...)) })
}

func TestSweep(t *testing.T) {
	set := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(set)
	t.Run("halves", testSweep) // of one core, if there are no more
	t.Run("shared", func(t *testing.T) {
		onOneCore(t)
		testSweep(t)
	})
}

func testSweep(t *testing.T) {
	o := quickSweep(t, "none")
	record := t.TempDir() + "/servers"
	t.Setenv("LOAD_TEST_RECORD", record)
	cores, err := process.Cores()
	require.NoError(t, err)
	runtime.SetDefaultGOMAXPROCS() // whatever the environment says: that is what Run goes back to
	procs := runtime.GOMAXPROCS(0)
	var steps []int
	o.OnStep = func(_ string, done, total int) {
		assert.Equal(t, 8, total)
		steps = append(steps, done)
	}
	r, err := Sweep(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, slices.Collect(intsBelow(8)), steps)
	halves := process.Halves(cores, process.SystemCPUs())
	assert.Equal(t, halves, r.Placement)
	require.Len(t, r.Points, 4)
	for i, p := range r.Points {
		assert.Equal(t, []int{1 + i/2, 1 + i%2*2}, []int{p.Loops, p.Connections})
		assert.GreaterOrEqual(t, p.Requests, 2*o.Load.Requests)
		assert.Positive(t, p.RequestsPerSecond.Min)
		assert.LessOrEqual(t, p.RequestsPerSecond.Min, p.RequestsPerSecond.Median)
		assert.LessOrEqual(t, p.RequestsPerSecond.Median, p.RequestsPerSecond.Max)
		assert.Positive(t, p.P50us)
		assert.LessOrEqual(t, p.P50us, p.P99us)
		assert.LessOrEqual(t, p.P99us, p.MaxUs)
	}
	require.Len(t, r.Peaks, 2)
	assert.InDelta(t, max(r.Points[0].RequestsPerSecond.Median, r.Points[1].RequestsPerSecond.Median), r.Peaks[0].RequestsPerSecond.Median, 0)
	assert.Equal(t, len(r.Server) < 2, r.Slope == nil)
	assert.Zero(t, r.Wrong+r.Refused)
	assert.False(t, r.Partial)
	assert.EqualValues(t, 1, r.Setup.Seed)
	servers, err := os.ReadFile(record)
	require.NoError(t, err)
	server := slices.Sorted(slices.Values(r.Server))
	assert.Equal(t, strings.Repeat(fmt.Sprintf("1 %v\n2 %v\n", server, server), 2), string(servers), "each has its loops and its cores, in each round")
	after, err := process.Cores()
	require.NoError(t, err)
	assert.Equal(t, cores, after, "no longer pinned")
	assert.Equal(t, procs, runtime.GOMAXPROCS(0))
	noServers(t)
}

// Every round measures every point, in another order, with all cores of the client's.
func TestSweepRounds(t *testing.T) {
	o := quickSweep(t, "none")
	o.Rounds, o.Connections = 3, []int{1, 2, 3, 4}
	var asked []Options
	o.run = func(_ context.Context, l Options) (Report, error) {
		rates := []float64{200, 100, 600}
		asked = append(asked, l)
		return Report{Figures: &Figures{RequestsPerSecond: rates[(len(asked)-1)/8] * float64(l.Connections)}, Requests: 1}, nil
	}
	r, err := Sweep(t.Context(), o)
	require.NoError(t, err)
	require.Len(t, asked, 3*8)
	var orders [3][]string // of each round
	for i, l := range asked {
		assert.True(t, l.Reset)
		assert.EqualValues(t, 1, l.Seed)
		orders[i/8] = append(orders[i/8], fmt.Sprint(l.Connect, l.Connections))
		if !r.Shared {
			assert.Equal(t, len(r.Client), l.Threads, "all of the half")
		}
	}
	for _, order := range orders {
		seen := map[string]int{}
		for _, at := range order {
			seen[at]++
		}
		assert.Len(t, seen, 8, "each once")
	}
	connections := func(round int) (all []int) {
		for _, l := range asked[8*round:][:8] {
			all = append(all, l.Connections)
		}
		return all
	}
	assert.NotEqual(t, connections(0), connections(1))
	require.Len(t, r.Points, 8)
	for _, p := range r.Points {
		n := float64(p.Connections)
		assert.Equal(t, measure.Spread{Median: 200 * n, Min: 100 * n, Max: 600 * n}, p.RequestsPerSecond)
		assert.EqualValues(t, 3, p.Requests)
	}
	noServers(t)
}

// The note blames the client only if the server had cores to spare.
func TestNoteClient(t *testing.T) {
	for _, tt := range []struct {
		busy   float64
		loops  int
		shared bool
		note   string
	}{
		{0, 2, false, ""}, {1.7, 2, false, ""}, {1.7, 4, false, ""}, {1.2, 2, true, ""},
		{1.2, 2, false, "at its peak the server kept 1.20 cores busy with 2 loops: the client bounds it"},
	} {
		var notes []string
		s := sweep{SweepReport: SweepReport{
			Placement: process.Placement{Server: []int{1, 2}, Shared: tt.shared},
			Peaks:     []Peak{{Point: Point{Loops: 1}}, {Point: Point{Loops: tt.loops, ServerCPU: tt.busy}}},
		}}
		s.o.OnNote = func(text string) { notes = append(notes, text) }
		s.noteClient()
		assert.Equal(t, tt.note, strings.Join(notes, ""))
	}
}

func TestBusyness(t *testing.T) {
	ready := func([]byte) (string, bool) { return "", true }
	p, err := process.Start(t.Context(), exec.Command("sh", "-c", "echo; while :; do :; done"),
		process.Options{Timeout: 20 * time.Second, Ready: ready})
	require.NoError(t, err)
	defer p.Stop()
	var b busyness
	assert.Zero(t, b.cores())
	b.sample(p)
	assert.Zero(t, b.cores())
	require.Eventually(t, func() bool {
		used, err := p.CPU()
		return err == nil && used > b.used[0]+20*time.Millisecond
	}, 20*time.Second, 5*time.Millisecond)
	b.sample(p)
	assert.Greater(t, b.used[1]-b.used[0], 20*time.Millisecond)
	assert.Positive(t, b.cores())
	require.Eventually(t, func() bool { // the two clocks of a sample are read one after the other
		b.sample(p)
		return b.cores() < 1.5
	}, 20*time.Second, 5*time.Millisecond)
	last := len(b.at) - 1
	assert.InDelta(t, b.cores(), float64(b.used[last]-b.used[0])/float64(b.at[last].Sub(b.at[0])), 0.001)
}

// noServers fails if a server is left.
func noServers(t *testing.T) {
	t.Helper()
	proc := os.DirFS("/proc")
	stats, err := fs.Glob(proc, "[0-9]*/stat")
	require.NoError(t, err)
	for _, name := range stats {
		text, _ := fs.ReadFile(proc, name) // it may have ended
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 {
			assert.NotEqual(t, fmt.Sprint(os.Getpid()), fields[1], "%s", text)
		}
	}
}

func TestSweepFaults(t *testing.T) {
	o := quickSweep(t, "ends")
	r, err := Sweep(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrLost)
	assert.ErrorContains(t, err, "cannot listen")
	assert.Empty(t, r.Points)

	o = quickSweep(t, "evicts")
	r, err = Sweep(t.Context(), o)
	require.NoError(t, err)
	assert.Positive(t, r.Wrong)
	assert.Positive(t, r.Points[0].Wrong)

	o = quickSweep(t, "none")
	o.Connections = []int{1, MaxConnections}
	if o.Connections[1] > mostConnections() { // files are that scarce almost everywhere
		o.Loops = []int{1}
		for newSweep(o, process.Placement{}, 1).order(0)[0].Connections != 1 {
			o.Load.Seed++
		}
		r, err = Sweep(t.Context(), o)
		require.ErrorContains(t, err, "1 loop, 60000 connections: ")
		assert.True(t, r.Partial)
		assert.Len(t, r.Points, 1)
		assert.Empty(t, r.Peaks)
	}
	noServers(t)
}

func TestSweepCancelled(t *testing.T) {
	o := quickSweep(t, "none")
	o.Load.Requests, o.Load.Duration = 0, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	o.OnStep = func(string, int, int) { time.AfterFunc(100*time.Millisecond, cancel) }
	r, err := Sweep(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	assert.True(t, r.Partial)
	noServers(t)
}
