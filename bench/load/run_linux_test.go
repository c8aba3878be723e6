package load

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/bench/load/loadtest"
	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

func TestMain(m *testing.M) {
	if fault := os.Getenv(asServer); fault != "" {
		serveAsHitline(fault)
	}
	_ = flag.Set("test.parallel", "8")               // tests wait more than they compute
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet's init starts some
}

// serve starts a real server in this process.
func serve(t *testing.T, pool coordinator.Pool, listen string) (addr string, service *lookup.Service) {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
	require.NoError(t, err)
	return serveOn(t, service, server.Config{Listeners: []server.Listener{{Address: listen}}})[0], service
}

// serveOn starts a server of a service until the test ends.
func serveOn(t *testing.T, service *lookup.Service, config server.Config) (addrs []string) {
	t.Helper()
	server, err := server.New(service, config)
	require.NoError(t, err)
	require.NoError(t, server.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, server.Shutdown(ctx))
	})
	return server.Addrs()
}

const anywhere = "tcp://127.0.0.1:0"

// start starts a server with a fault, until the test ends.
func start(t *testing.T, s *loadtest.Server) (addr string) {
	t.Helper()
	addr, err := s.Start()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return addr
}

// problems gathers what OnProblem is told.
type problems struct {
	mu  sync.Mutex
	all []*Problem
}

func (p *problems) add(one *Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, one)
}

func TestRun(t *testing.T) {
	full := coordinator.Pool{HashBlockSize: 32}
	for name, tt := range map[string]struct {
		pool coordinator.Pool
		o    Options
	}{
		"closed":           {full, Options{Requests: 500}},
		"closed, a thread": {full, Options{Requests: 500, Connections: min(2, runtime.GOMAXPROCS(0)), Pipeline: 3}},
		"pipelined":        {full, Options{Requests: 2000, Connections: 9, Pipeline: 7, Hashes: Lengths{Least: 1, Most: 300}}},
		"long":             {full, Options{Requests: 100, Connections: 3, Pipeline: 4, Hashes: Lengths{Least: 20_000, Most: 20_000}}},
		"zmtp":             {full, Options{Requests: 500, Connections: 3, Dialect: wire.ZMTP, Stores: 0.1}},
		"zmtp pipelined":   {full, Options{Requests: 500, Connections: 3, Pipeline: 5, Dialect: wire.ZMTP}},
		"open":             {full, Options{Requests: 500, Connections: 3, Rates: []float64{5000, 10000}}},
		"open, few":        {full, Options{Requests: 3, Connections: 5, Rates: []float64{1000}}},
		"open, too fast":   {full, Options{Requests: 3000, Connections: 2, Rates: []float64{1e8}}},
		"few":              {full, Options{Requests: 3, Connections: 9}},
		"open for a time":  {full, Options{Duration: 200 * time.Millisecond, Rates: []float64{2000}, Warmup: 20 * time.Millisecond}},
		"for a time":       {full, Options{Duration: 200 * time.Millisecond, Connections: 2, Warmup: 20 * time.Millisecond}},
		"changes":          {full, Options{Requests: 2000, Connections: 3, Pipeline: 6, Stores: 0.2, Evicts: 0.2}},
		"growing":          {full, Options{Requests: 2000, Connections: 5, Pipeline: 6, Stores: 0.5}},
		"evicts":           {full, Options{Requests: 1000, Evicts: 0.3, Rates: []float64{20000}}},
		"hybrid":           {hybrid(), Options{Requests: 2000, Connections: 3, Pipeline: 4, Hashes: Lengths{Least: 5, Most: 200}, Stores: 0.1, Evicts: 0.1}},
		"vllm":             {coordinator.Pool{HashBlockSize: 32, VLLM: "0.33.0"}, Options{Requests: 500, Stores: 0.1}},
		"vllm, zmtp":       {coordinator.Pool{HashBlockSize: 32, VLLM: "0.27.1"}, Options{Requests: 500, Dialect: wire.ZMTP}},
		"first":            {full, Options{Requests: 200, MissAt: workload.MissFirst}},
		"middle":           {full, Options{Requests: 200, MissAt: workload.MissMiddle}},
		"tail":             {full, Options{Requests: 200, MissAt: workload.MissTail}},
	} {
		t.Run(name, func(t *testing.T) {
			o := tt.o
			var service *lookup.Service
			o.Connect, service = serve(t, tt.pool, anywhere)
			o.HitShare, o.Entries, o.Timeout = 0.7, 1000, patience
			var got problems
			o.OnProblem = got.add
			r, err := Run(t.Context(), o)
			for err == nil && r.Requests == 0 && o.Duration > 0 && o.Duration < patience { // the machine was busy for all of the time
				o.Duration *= 4
				r, err = Run(t.Context(), o)
			}
			require.NoError(t, err)
			assert.Empty(t, got.all)
			assert.Zero(t, r.Wrong)
			assert.Zero(t, r.Refused)
			assert.False(t, r.Partial)
			steps := max(1, len(o.Rates))
			require.Len(t, r.Steps, steps)
			if o.Requests > 0 {
				assert.EqualValues(t, steps*int(o.Requests), r.Requests)
			}
			for _, s := range r.Steps {
				assert.Positive(t, s.RequestsPerSecond)
				assert.Positive(t, s.HashesPerSecond)
				assert.Positive(t, s.MaxUs)
				assert.GreaterOrEqual(t, s.MaxUs, s.P999us)
			}
			assert.GreaterOrEqual(t, r.Entries, 1000)
			assert.Equal(t, o.Stores > 0 || o.Evicts > 0, r.Stores > 0)
			assert.Equal(t, o.Evicts > 0, r.Evicts > 0)
			stat := service.Stat()
			assert.GreaterOrEqual(t, stat.Lookups, r.Requests-r.Stores-r.Evicts)
			assert.GreaterOrEqual(t, stat.Entries, int64(100))
			assert.Positive(t, stat.HitTokens)
			assert.True(t, stat.MissTokens > 0 || o.Requests < 100)
		})
	}
}

func TestRunIPC(t *testing.T) {
	for _, addr := range []string{"ipc://" + filepath.Join(t.TempDir(), "s"), fmt.Sprintf("ipc://@hitline-load-%d", time.Now().UnixNano())} {
		o := Options{Requests: 100, Connections: 3, HitShare: 1, Pipeline: 2}
		o.Connect, _ = serve(t, coordinator.Pool{}, addr)
		r, err := Run(t.Context(), o)
		require.NoError(t, err, addr)
		assert.EqualValues(t, 100, r.Requests)
		assert.Zero(t, r.Wrong)
	}
}

// Runs after one another do not disturb each other, nor does what is there already;
// a reset forgets it.
func TestRunAgain(t *testing.T) {
	addr, service := serve(t, coordinator.Pool{}, anywhere)
	o := Options{Connect: addr, Requests: 100, Entries: 640, Pipeline: 2}
	for runs := range 3 {
		r, err := Run(t.Context(), o)
		require.NoError(t, err)
		assert.Zero(t, r.Wrong)
		assert.EqualValues(t, 640*(runs+1), service.Stat().Entries)
	}
	o.Reset = true
	_, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.EqualValues(t, 640, service.Stat().Entries)
}

// The same seed makes the same hashes.
func TestRunSeed(t *testing.T) {
	addr, service := serve(t, coordinator.Pool{}, anywhere)
	for range 2 {
		r, err := Run(t.Context(), Options{Connect: addr, Requests: 100, Entries: 640, Seed: 7})
		require.NoError(t, err)
		assert.Zero(t, r.Wrong)
	}
	assert.EqualValues(t, 640, service.Stat().Entries)

	r, err := Run(t.Context(), Options{Connect: addr, Requests: 100, Entries: 640})
	require.NoError(t, err)
	assert.EqualValues(t, 1280, service.Stat().Entries, "a random seed")
	assert.NotEmpty(t, r.Setup.Command)
	_, err = Run(t.Context(), Options{Connect: addr, Requests: 100, Entries: 640, Seed: r.Setup.Seed})
	require.NoError(t, err)
	assert.EqualValues(t, 1280, service.Stat().Entries, "the seed of the report")
}

// A run keeps to the client's cores, with a worker on each, and gives them back.
func TestClientCores(t *testing.T) {
	allowed, err := process.Cores()
	require.NoError(t, err)
	halves := process.Halves(allowed, process.SystemCPUs())
	if halves.Shared {
		t.Skip("only one core")
	}
	client, server := halves.Client, halves.Server
	addr, _ := serve(t, coordinator.Pool{}, anywhere)
	var during []int
	o := Options{Connect: addr, Requests: 500, Connections: 64, HitShare: 1, ClientCores: client, ServerCores: server, Timeout: patience}
	o.OnPhase = func(string, int) { during, _ = process.Cores() }
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, client, during)
	assert.Equal(t, Cores{Client: client, Server: server, Pinned: true}, r.Cores)
	assert.Equal(t, len(client), r.Threads)
	after, err := process.Cores()
	require.NoError(t, err)
	assert.Equal(t, allowed, after)

	o.ClientCores, o.ServerCores = nil, nil
	r, err = Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, Cores{Client: allowed}, r.Cores)
}

func TestRunManyConnections(t *testing.T) {
	addr, service := serve(t, coordinator.Pool{}, anywhere)
	r, err := Run(t.Context(), Options{Connect: addr, Connections: 1000, Requests: 5000, HitShare: 0.5, Timeout: patience})
	require.NoError(t, err)
	assert.EqualValues(t, 5000, r.Requests)
	assert.Zero(t, r.Wrong)
	assert.GreaterOrEqual(t, service.Stat().Lookups, int64(5000))
	err = enoughFiles(math.MaxInt)
	require.ErrorIs(t, err, measure.ErrOptions)
	require.ErrorContains(t, err, "raise its limit (ulimit -n)")
}

// loops are the ways in which a connection is served.
var loops = map[string]Options{
	"blocking": {Connections: 1},
	"epoll":    {Connections: runtime.GOMAXPROCS(0) + 3, Pipeline: 4},
	"open":     {Connections: 2, Pipeline: 8, Rates: []float64{20_000}},
	"zmtp":     {Connections: 1, Pipeline: 3, Dialect: wire.ZMTP},
}

// noAnswer is what is said of a request that has waited for too long.
const noAnswer = "no answer for "

// Every fault is seen, every time, however the connection is served.
func TestFaults(t *testing.T) {
	t.Parallel()
	for fault, tt := range map[loadtest.Fault]struct {
		err     error  // of Run
		text    string // in it, or in the first problem
		refused bool   // counted as that, else as wrong
	}{
		loadtest.None:      {},
		loadtest.OffByOne:  {text: "tokens, got "},
		loadtest.NotWhole:  {text: "tokens, got "},
		loadtest.Short:     {text: "tokens, got a frame of 3 bytes"},
		loadtest.Long:      {text: "tokens, got a frame of 5 bytes"},
		loadtest.Frames:    {text: "tokens, got 2 frames"},
		loadtest.Done:      {text: "tokens, got a frame of 1 bytes, 01"},
		loadtest.Garbage:   {err: measure.ErrAnswer, text: "485454502f312e31"},
		loadtest.Refuses:   {text: "got a refusal (00): \"tired\"", refused: true},
		loadtest.Extra:     {},
		loadtest.Twice:     {},
		loadtest.Silent:    {err: measure.ErrLost, text: noAnswer},
		loadtest.Late:      {err: measure.ErrLost, text: noAnswer},
		loadtest.Closes:    {err: measure.ErrLost, text: "closed by the server"},
		loadtest.Half:      {err: measure.ErrLost, text: "closed by the server"},
		loadtest.Forgets:   {text: "below what was stored; does the server evict?"},
		loadtest.Keeps:     {text: "tokens, got "},
		loadtest.NoStore:   {err: measure.ErrAnswer, text: "the server refused "},
		loadtest.LastTwice: {err: measure.ErrAnswer, text: "bytes that were not asked for"},
	} {
		for loop, o := range loops {
			t.Run(fmt.Sprintf("%s/%s", fault, loop), func(t *testing.T) {
				t.Parallel()
				o.Requests, o.HitShare, o.Stores, o.Evicts, o.Timeout = 200, 0.6, 0.1, 0.1, patience
				o.Hashes = Lengths{Least: 2, Most: 20}
				o.Entries = 500
				if tt.text == noAnswer {
					o.Timeout = 150 * time.Millisecond
				}
				var got problems
				o.OnProblem = got.add
				run := func() (Report, error) {
					addr := start(t, &loadtest.Server{Fault: fault, Delay: patience, Honest: 5})
					o.Connect = addr
					return Run(t.Context(), o)
				}
				r, err := run()
				for tt.text == noAnswer && o.Timeout < patience && !strings.Contains(fmt.Sprint(err), noAnswer) {
					o.Timeout *= 8 // on a busy machine it was over before the first fault
					r, err = run()
				}
				if fault == loadtest.None {
					require.NoError(t, err)
					require.Empty(t, got.all)
					return
				}
				if fault == loadtest.Twice || fault == loadtest.Extra { // by what comes next, as what is read together
					require.True(t, err != nil || r.Wrong > 0)
					return
				}
				require.ErrorIs(t, err, tt.err)
				assert.Equal(t, err != nil, r.Partial)
				text := ""
				if err != nil {
					text = err.Error()
				} else {
					require.NotEmpty(t, got.all)
					require.Positive(t, map[bool]int64{true: r.Refused, false: r.Wrong}[tt.refused])
					require.Equal(t, len(got.all), int(r.Refused+r.Wrong))
					text = got.all[0].Error()
					assert.Contains(t, text, o.Connect+": request ")
					assert.Equal(t, tt.refused, got.all[0].Refused)
				}
				assert.Contains(t, text, tt.text)
			})
		}
	}
}

// Answers of one connection that come in the wrong order are wrong where they
// differ.
func TestSwaps(t *testing.T) {
	addr := start(t, &loadtest.Server{Fault: loadtest.Swaps})
	r, err := Run(t.Context(), Options{Connect: addr, Requests: 500, Pipeline: 8, HitShare: 0.5})
	require.NoError(t, err)
	assert.Positive(t, r.Wrong)
}

// Requests that the kernel does not take at once are sent piece by piece.
func TestLongRequests(t *testing.T) {
	t.Parallel()
	for loop, o := range loops {
		t.Run(loop, func(t *testing.T) {
			t.Parallel()
			addr := start(t, &loadtest.Server{})
			o.Connect, o.Requests, o.HitShare, o.Hashes, o.Timeout = addr, 12, 0.5, Lengths{Least: 4000, Most: 4000}, patience
			o.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				if err == nil {
					err = conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
				}
				return conn, err
			}
			r, err := Run(t.Context(), o)
			require.NoError(t, err)
			assert.EqualValues(t, 12, r.Requests)
			assert.Zero(t, r.Wrong)
		})
	}
}

// A wait that an open loop would have had counts for all that fell due meanwhile.
func TestCoordinatedOmission(t *testing.T) {
	t.Parallel()
	const stall = 300 * time.Millisecond
	addr := start(t, &loadtest.Server{Fault: loadtest.Late, Delay: stall, Honest: 89})
	o := Options{Connect: addr, Requests: 99, Rates: []float64{1000}, HitShare: 1, Timeout: patience}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, r.MaxUs, 1e3*float64(stall.Milliseconds()))
	stalled := 0
	for _, bar := range r.histogram.Distribution() {
		if bar.From > int64(stall/2) {
			stalled += int(bar.Count)
		}
	}
	assert.GreaterOrEqual(t, stalled, 8, "request 90 waited, and all behind it")
	assert.Zero(t, r.Steps[0].Unsent)
}

// A lookup that had no answer when a run was cut short has waited at least until then.
func TestStallThatEndsTheRun(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	for loop, o := range loops {
		t.Run(loop, func(t *testing.T) {
			t.Parallel()
			addr := start(t, &loadtest.Server{Fault: loadtest.Silent, Honest: 50})
			o.Connect, o.Requests, o.Entries, o.Timeout = addr, 500, 500, timeout
			r, err := Run(t.Context(), o)
			require.ErrorIs(t, err, measure.ErrLost)
			require.Len(t, r.Steps, 1)
			assert.GreaterOrEqual(t, r.Steps[0].MaxUs, 1e6*timeout.Seconds())
			assert.Positive(t, r.Steps[0].AtLeast)
		})
	}
}

// A stall that lasts beyond the end counts whole, in both loops.
func TestStallAcrossTheEnd(t *testing.T) {
	t.Parallel()
	const stall = 1500 * time.Millisecond
	for name, change := range map[string]func(*Options){
		"closed":           func(*Options) {},
		"closed, by epoll": func(o *Options) { o.Connections = runtime.GOMAXPROCS(0) + 1 },
		"open":             func(o *Options) { o.Rates = []float64{100} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := start(t, &loadtest.Server{Fault: loadtest.Late, Delay: stall, Honest: 5})
			o := Options{Connect: addr, Duration: time.Second, HitShare: 1, Timeout: patience}
			change(&o)
			r, err := Run(t.Context(), o)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, r.MaxUs, 1e6*stall.Seconds())
			if len(o.Rates) > 0 {
				assert.Positive(t, r.Unsent)
				assert.Positive(t, r.AtLeast)
			}
		})
	}
}

// A few requests of an open loop are not more a second than fell due.
func TestFewAtARate(t *testing.T) {
	addr := start(t, &loadtest.Server{})
	for count := range int64(3) {
		r, err := Run(t.Context(), Options{Connect: addr, Requests: count + 1, Rates: []float64{50}, HitShare: 1, Timeout: patience})
		require.NoError(t, err)
		assert.Equal(t, count+1, r.Requests)
		assert.LessOrEqual(t, r.RequestsPerSecond, 50.0)
	}
}

func TestRunCancelled(t *testing.T) {
	for loop, o := range loops {
		t.Run(loop, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			addr := start(t, &loadtest.Server{Fault: loadtest.Silent, Honest: 50, OnSilence: cancel})
			o.Connect, o.Requests, o.Timeout = addr, 1_000_000, time.Hour
			r, err := Run(ctx, o)
			require.ErrorIs(t, err, context.Canceled)
			assert.True(t, r.Partial)
		})
	}
}

func TestRunUnreachable(t *testing.T) {
	o := Options{Connect: "tcp://127.0.0.1:1", Requests: 1}
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrLost)
	for addr, text := range map[string]string{"udp://h:1": "unknown scheme", "": "has no host and port"} {
		o.Connect = addr
		_, err = Run(t.Context(), o)
		require.ErrorIs(t, err, measure.ErrOptions)
		require.ErrorContains(t, err, text)
	}
}

// What is measured is the pool of the connections, which a lookup must fit.
func TestRunPool(t *testing.T) {
	o := Options{Requests: 1, Hashes: Lengths{Least: 3, Most: 3}}
	o.Connect, _ = serve(t, hybrid(), anywhere)
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrOptions)
	require.ErrorContains(t, err, "3 hashes of 16 tokens; a lookup takes a multiple of 64 tokens")
}

func TestRunReport(t *testing.T) {
	t.Parallel()
	o := Options{Duration: time.Second / 2, Rates: []float64{300, 600}, Entries: 640, HitShare: 0.25, MissAt: workload.MissTail, Pipeline: 2}
	o.Connect, _ = serve(t, coordinator.Pool{}, anywhere)
	samples, phases := 0, ""
	o.OnPhase = func(phase string, total int) { phases += fmt.Sprintf("%s %d ", phase, total) }
	o.OnSample = func(s Sample) { samples++; assert.LessOrEqual(t, s.Elapsed, 0.6) }
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, 20, samples)
	assert.Equal(t, "connect 1 store 10 ", phases)
	var text bytes.Buffer
	require.NoError(t, measure.WriteJSON(&text, r))
	assert.Equal(t, 1, strings.Count(text.String(), "\n"))
	var got map[string]any
	require.NoError(t, json.Unmarshal(text.Bytes(), &got))
	for _, key := range strings.Fields(`setup connect dialect mode connections pipeline threads cores hashes hit_share miss_at entries seconds requests
		stores evicts refused wrong steps`) {
		assert.Contains(t, got, key)
	}
	assert.Equal(t, "open", got["mode"])
	steps := got["steps"].([]any)
	require.Len(t, steps, 2)
	for i, rate := range o.Rates {
		step := steps[i].(map[string]any)
		assert.InDelta(t, rate, step["rate"], 0)
		assert.InDelta(t, 0.5, step["seconds"], 0)
		assert.LessOrEqual(t, step["requests"], rate)
		for _, key := range strings.Fields("requests_per_s hashes_per_s p50_us p90_us p99_us p999_us max_us mean_us unsent spread p50_us_min p50_us_max refused wrong") {
			assert.Contains(t, step, key)
		}
	}
	text.Reset()
	require.NoError(t, r.WriteTable(&text))
	for _, row := range []string{"load         open loop, 1 connections, 2 under way on each\n", "25 % hit whole, others miss at: tail\n", "wrong        0\n", "\n 600 "} {
		assert.Contains(t, text.String(), row)
	}
}

// Nothing is allocated for a request and its answer, once buffers have grown.
func TestRequestsDoNotAllocate(t *testing.T) {
	o := Options{Pipeline: 4, HitShare: 0.5}.withDefaults()
	s, err := newShaper(hybrid(), nil)
	require.NoError(t, err)
	c, err := newChains(o, s)
	require.NoError(t, err)
	m, err := newMix(o, c, s, 0)
	require.NoError(t, err)
	w := &worker{run: &runner{}, stage: stage{end: 10}, window: newCollector(1).fresh(0, 1)}
	w.taking = w.take
	one := newConn(0, o, wire.Socket{})
	one.begin(m.next, -1)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		one.ask(1, 1, true)
		one.vector = one.vector[:0]
		one.in = netproto.AppendHit(one.buffer[:0], nil, one.slots[one.answered%4].expect)
		if err := one.judge(5, patience, w.taking); err != nil {
			t.Error(err)
		}
	}))
	assert.EqualValues(t, 1001, w.window.requests)
	assert.Zero(t, w.run.wrong)
}
