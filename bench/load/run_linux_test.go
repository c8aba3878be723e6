package load

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// patience is far more than anything here takes.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8")               // tests wait more than they compute
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet's init starts some
}

// serve starts a real server in this process until the test ends.
func serve(t *testing.T, pool coordinator.Pool, listener server.Listener) (addr string, service *lookup.Service) {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool})
	require.NoError(t, err)
	server, err := server.New(service, server.Config{Listeners: []server.Listener{listener}})
	require.NoError(t, err)
	require.NoError(t, server.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, server.Shutdown(ctx))
	})
	return server.Addrs()[0], service
}

var anywhere = server.Listener{Address: "tcp://127.0.0.1:0"}

// with returns good and quick options, changed by change.
func with(connect string, change func(*Options)) Options {
	o := Options{
		Connect: connect, Connections: 1, Pipeline: 1, Hashes: 20, HitShare: 0.7, Entries: 1000, Requests: 500, Timeout: patience,
		OnProblem: func(*Problem) {}, OnStep: func(string, int, int) {},
	}
	change(&o)
	return o
}

func same(*Options) {}

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
		pool   coordinator.Pool
		change func(*Options)
	}{
		"closed":         {full, same},
		"pipelined":      {full, func(o *Options) { o.Connections, o.Pipeline, o.Requests = 9, 7, 2000 }},
		"long":           {full, func(o *Options) { o.Connections, o.Pipeline, o.Hashes, o.Requests = 3, 4, 20_000, 100 }},
		"very long":      {full, func(o *Options) { o.Hashes, o.Requests = 200_000, 12 }}, // not taken by the kernel at once
		"open":           {full, func(o *Options) { o.Connections, o.Rates = 3, []float64{5000, 10000} }},
		"open, few":      {full, func(o *Options) { o.Connections, o.Requests, o.Rates = 5, 3, []float64{1000} }},
		"open, too fast": {full, func(o *Options) { o.Connections, o.Requests, o.Rates = 2, 3000, []float64{1e8} }},
		"few":            {full, func(o *Options) { o.Connections, o.Requests = 9, 3 }},
		"open for a time": {full, func(o *Options) {
			o.Requests, o.Duration, o.Rates, o.Warmup = 0, 200*time.Millisecond, []float64{2000}, 20*time.Millisecond
		}},
		"for a time": {full, func(o *Options) {
			o.Requests, o.Duration, o.Connections, o.Warmup = 0, 200*time.Millisecond, 2, 20*time.Millisecond
		}},
		"many":     {full, func(o *Options) { o.Connections, o.Requests = 1000, 5000 }},
		"vllm":     {coordinator.Pool{HashBlockSize: 32, VLLM: coordinator.NewestRelease()}, same},
		"one hash": {coordinator.Pool{HashBlockSize: 16, VLLM: "0.27.1"}, func(o *Options) { o.Hashes = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			addr, service := serve(t, tt.pool, anywhere)
			o := with(addr, tt.change)
			var got problems
			o.OnProblem = got.add
			r, err := Run(t.Context(), o)
			for err == nil && r.Requests == 0 && o.Duration > 0 && o.Duration < patience { // the machine was busy for all of the time
				o.Duration *= 4
				r, err = Run(t.Context(), o)
			}
			require.NoError(t, err)
			assert.Empty(t, got.all)
			assert.Zero(t, r.Wrong+r.Refused)
			assert.False(t, r.Partial)
			steps := max(1, len(o.Rates))
			require.Len(t, r.Steps, steps)
			if o.Requests > 0 {
				assert.EqualValues(t, steps*int(o.Requests), r.Requests)
			}
			for _, s := range r.Steps {
				assert.Positive(t, s.RequestsPerSecond)
				assert.Positive(t, s.HashesPerSecond)
				assert.GreaterOrEqual(t, s.MaxUs, s.P999us)
			}
			assert.GreaterOrEqual(t, r.Entries, 1000)
			stat := service.Stat()
			assert.GreaterOrEqual(t, stat.Lookups, r.Requests)
			assert.Equal(t, int64(r.Entries), stat.Entries)
		})
	}
}

func TestRunIPC(t *testing.T) {
	addr, _ := serve(t, coordinator.Pool{}, server.Listener{Address: "ipc://" + filepath.Join(t.TempDir(), "s")})
	r, err := Run(t.Context(), with(addr, same))
	require.NoError(t, err)
	assert.EqualValues(t, 500, r.Requests)
	assert.Zero(t, r.Wrong)
}

// Without the token nothing is served.
func TestRunWithToken(t *testing.T) {
	const token = "correct-horse-battery"
	rules, err := access.NewRules(0, []access.Credential{{Name: "bench", Digest: access.DigestOf([]byte(token)), Permissions: access.All}})
	require.NoError(t, err)
	addr, _ := serve(t, coordinator.Pool{}, server.Listener{Address: anywhere.Address, Settings: server.Settings{Rules: rules}})
	o := with(addr, func(o *Options) { o.Token = func() string { return token } })
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.EqualValues(t, 500, r.Requests)
	o.Token = nil
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrAnswer)
	require.ErrorContains(t, err, "not allowed")
	o.Token = func() string { return "wrong-horse-battery" }
	_, err = Run(t.Context(), o)
	require.ErrorContains(t, err, "auth was answered a refusal (00)")
	require.NotContains(t, err.Error(), "wrong-horse")
}

// The same seed makes the same hashes; runs with others do not disturb each other.
func TestRunSeed(t *testing.T) {
	addr, service := serve(t, coordinator.Pool{}, anywhere)
	for range 2 {
		r, err := Run(t.Context(), with(addr, func(o *Options) { o.Seed = 7 }))
		require.NoError(t, err)
		assert.Zero(t, r.Wrong)
	}
	assert.EqualValues(t, 1000, service.Stat().Entries)
	r, err := Run(t.Context(), with(addr, same))
	require.NoError(t, err)
	assert.Zero(t, r.Wrong)
	assert.EqualValues(t, 2000, service.Stat().Entries, "a random seed")
	_, err = Run(t.Context(), with(addr, func(o *Options) { o.Seed = r.Setup.Seed }))
	require.NoError(t, err)
	assert.EqualValues(t, 2000, service.Stat().Entries, "the seed of the report")
}

// A run keeps to the client's cores, with a worker on each, and gives them back.
func TestPlacement(t *testing.T) {
	allowed, err := process.Cores()
	require.NoError(t, err)
	halves := process.Halves(allowed, process.SystemCPUs())
	if halves.Shared {
		t.Skip("only one core")
	}
	addr, _ := serve(t, coordinator.Pool{}, anywhere)
	var during []int
	r, err := Run(t.Context(), with(addr, func(o *Options) {
		o.Connections, o.Placement = 64, halves
		o.OnStep = func(string, int, int) { during, _ = process.Cores() }
	}))
	require.NoError(t, err)
	assert.Equal(t, halves.Client, during)
	assert.Equal(t, halves, r.Placement)
	assert.Equal(t, len(halves.Client), r.Threads)
	after, err := process.Cores()
	require.NoError(t, err)
	assert.Equal(t, allowed, after)
}

// loops are the ways in which a connection is served.
var loops = map[string]func(*Options){
	"blocking": same,
	"epoll":    func(o *Options) { o.Connections, o.Pipeline = runtime.GOMAXPROCS(0)+3, 4 },
	"open":     func(o *Options) { o.Connections, o.Pipeline, o.Rates = 2, 8, []float64{20_000} },
}

// noAnswer is what is said of a request that has waited for too long.
const noAnswer = "no answer for "

// Every fault is seen, every time, however the connection is served.
func TestFaults(t *testing.T) {
	t.Parallel()
	for fault, tt := range map[fault]struct {
		err     error  // of Run
		text    string // in it, or in the first problem
		refused bool   // counted as that, else as wrong
	}{
		noFault:   {},
		offByOne:  {text: "tokens, got "},
		short:     {text: "tokens, got a frame of 3 bytes"},
		garbage:   {err: measure.ErrAnswer, text: "485454502f312e31"},
		refuses:   {text: "got a refusal (00): \"tired\"", refused: true},
		extra:     {},
		twice:     {},
		silent:    {err: measure.ErrLost, text: noAnswer},
		late:      {err: measure.ErrLost, text: noAnswer},
		closes:    {err: measure.ErrLost, text: "closed by the server"},
		half:      {err: measure.ErrLost, text: "closed by the server"},
		forgets:   {text: "below what was stored; does the server evict?"},
		noStore:   {err: measure.ErrAnswer, text: "the server refused "},
		lastTwice: {err: measure.ErrAnswer, text: "bytes that were not asked for"},
	} {
		for loop, change := range loops {
			t.Run(fmt.Sprintf("%s/%s", fault, loop), func(t *testing.T) {
				t.Parallel()
				o := with("", change)
				if tt.text == noAnswer {
					o.Timeout = 150 * time.Millisecond
				}
				var got problems
				o.OnProblem = got.add
				run := func() (Report, error) {
					o.Connect = (&faulty{fault: fault, delay: patience, honest: 5}).start(t)
					return Run(t.Context(), o)
				}
				r, err := run()
				for tt.text == noAnswer && o.Timeout < patience && !strings.Contains(fmt.Sprint(err), noAnswer) {
					o.Timeout *= 8 // on a busy machine it was over before the first fault
					r, err = run()
				}
				if fault == noFault {
					require.NoError(t, err)
					require.Empty(t, got.all)
					return
				}
				if fault == twice || fault == extra { // by what comes next, as what is read together
					require.True(t, err != nil || r.Wrong > 0)
					return
				}
				require.ErrorIs(t, err, tt.err)
				assert.Equal(t, err != nil, r.Partial)
				text := fmt.Sprint(err)
				if err == nil {
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

// Answers of one connection that come in the wrong order are wrong where they differ.
func TestSwaps(t *testing.T) {
	addr := (&faulty{fault: swaps}).start(t)
	r, err := Run(t.Context(), with(addr, func(o *Options) { o.Pipeline = 8 }))
	require.NoError(t, err)
	assert.Positive(t, r.Wrong)
}

// A wait that an open loop would have had counts for all that fell due meanwhile.
func TestCoordinatedOmission(t *testing.T) {
	t.Parallel()
	const stall = 300 * time.Millisecond
	addr := (&faulty{fault: late, delay: stall, honest: 89}).start(t)
	r, err := Run(t.Context(), with(addr, func(o *Options) { o.Requests, o.Rates = 99, []float64{1000} }))
	require.NoError(t, err)
	stalled := 0
	for _, bar := range r.histogram.Distribution() {
		if bar.From > int64(stall/2) {
			stalled += int(bar.Count)
		}
	}
	assert.GreaterOrEqual(t, r.Steps[0].MaxUs, 1e3*float64(stall.Milliseconds()))
	assert.GreaterOrEqual(t, stalled, 8, "a request waited, and all that came after it")
	assert.Zero(t, r.Steps[0].Unsent)
}

// A lookup that had no answer when a run was cut short has waited at least until then.
func TestStallThatEndsTheRun(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	for loop, change := range loops {
		t.Run(loop, func(t *testing.T) {
			t.Parallel()
			o := with((&faulty{fault: silent, honest: 50}).start(t), change)
			o.Timeout = timeout
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
		"closed":           same,
		"closed, by epoll": func(o *Options) { o.Connections = runtime.GOMAXPROCS(0) + 1 },
		"open":             func(o *Options) { o.Rates = []float64{100} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := with((&faulty{fault: late, delay: stall, honest: 5}).start(t), change)
			o.Requests, o.Duration = 0, time.Second
			r, err := Run(t.Context(), o)
			require.NoError(t, err)
			assert.GreaterOrEqual(t, r.Steps[0].MaxUs, 1e6*stall.Seconds())
			if len(o.Rates) > 0 {
				assert.Positive(t, r.Steps[0].Unsent)
				assert.Positive(t, r.Steps[0].AtLeast)
			}
		})
	}
}

// A few requests of an open loop are not more a second than fell due.
func TestFewAtARate(t *testing.T) {
	addr := (&faulty{}).start(t)
	for count := range int64(3) {
		r, err := Run(t.Context(), with(addr, func(o *Options) { o.Requests, o.Rates = count+1, []float64{50} }))
		require.NoError(t, err)
		assert.Equal(t, count+1, r.Requests)
		assert.LessOrEqual(t, r.Steps[0].RequestsPerSecond, 50.0)
	}
}

func TestRunCancelled(t *testing.T) {
	for loop, change := range loops {
		t.Run(loop, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			o := with((&faulty{fault: silent, honest: 50, onSilence: cancel}).start(t), change)
			o.Requests, o.Timeout = 1_000_000, time.Hour
			r, err := Run(ctx, o)
			require.ErrorIs(t, err, context.Canceled)
			assert.True(t, r.Partial)
		})
	}
}

func TestRunUnreachable(t *testing.T) {
	_, err := Run(t.Context(), with("tcp://127.0.0.1:1", same))
	require.ErrorIs(t, err, measure.ErrLost)
	for addr, text := range map[string]string{
		"udp://h:1": "unknown scheme", "": "has no host and port", "tls://127.0.0.1:1": "only tcp:// and ipc:// addresses are measured",
	} {
		_, err = Run(t.Context(), with(addr, same))
		require.ErrorIs(t, err, measure.ErrOptions)
		require.ErrorContains(t, err, text)
	}
	addr, _ := serve(t, coordinator.Pool{HashBlockSize: 16, Groups: []coordinator.Group{
		{Kind: coordinator.FullAttention, BlockSize: 16}, {Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 64},
	}}, anywhere)
	_, err = Run(t.Context(), with(addr, same))
	require.ErrorContains(t, err, "asking for the server's pool: bad options: to 2 stored hashes")
}

func TestRunReport(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t, coordinator.Pool{}, anywhere)
	phases := ""
	o := with(addr, func(o *Options) { o.Requests, o.Duration, o.Rates = 0, time.Second/2, []float64{300, 600} })
	o.OnStep = func(phase string, done, total int) { phases += fmt.Sprintf("%s %d/%d ", phase, done, total) }
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, "connect 0/1 store 0/50 measure 0/2 measure 1/2 ", phases)
	assert.Equal(t, "open", r.Mode)
	require.Len(t, r.Steps, 2)
	for i, rate := range o.Rates {
		assert.InDelta(t, rate, r.Steps[i].Rate, 0)
		assert.InDelta(t, 0.5, r.Steps[i].Seconds, 0)
		assert.LessOrEqual(t, float64(r.Steps[i].Requests), rate)
	}
	var text strings.Builder
	require.NoError(t, r.WriteTable(&text))
	for _, row := range []string{"load         open loop, 1 connections, 1 under way on each\n", "20 hashes, 70 % hit whole\n", "wrong        0\n", "\n 600  "} {
		assert.Contains(t, text.String(), row)
	}
}

// Nothing is allocated for a request and its answer, once buffers have grown.
func TestRequestsDoNotAllocate(t *testing.T) {
	o := with("", func(o *Options) { o.Pipeline, o.HitShare = 4, 0.5 })
	l, err := newLookups(o, workload.Pool{BlockSize: 16})
	require.NoError(t, err)
	w := &worker{run: &runner{o: o}, stage: stage{end: 10}, tally: newTally(0)}
	w.recordFunc = w.record
	one := newConn(0, o, wire.Socket{})
	one.begin(l.mix(0), -1)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		one.ask(1, 1, true)
		one.vector = one.vector[:0]
		one.in = netproto.AppendHit(one.buffer[:0], nil, one.slots[one.answered%4].expect)
		if err := one.checkReplies(5, patience, w.recordFunc); err != nil {
			t.Error(err)
		}
	}))
	assert.EqualValues(t, 1001, w.tally.requests)
	assert.Zero(t, w.run.wrong)
}

// Misses ask for hashes that are not stored, each for another first one.
func TestMix(t *testing.T) {
	l, err := newLookups(with("", func(o *Options) { o.HitShare = 0.5 }), workload.Pool{BlockSize: 16})
	require.NoError(t, err)
	stored := map[string]bool{}
	for i := range l.Len() {
		for h := range l.Hashes() {
			stored[string(l.Hash(i, h))] = true
		}
	}
	next, hits, absent := l.mix(3), 0, map[string]bool{}
	for range 1000 {
		var s slot
		parts, more := next(&s, nil)
		require.True(t, more)
		request := strings.TrimPrefix(string(joined(parts)), string(l.head))
		require.Len(t, request, 20*hashLen)
		for i := range 20 {
			require.Equal(t, i < s.stored, stored[request[i*hashLen:][:hashLen]])
		}
		require.EqualValues(t, 16*s.stored, s.expect)
		if s.stored == 20 {
			hits++
		} else {
			absent[request[s.stored*hashLen:][:hashLen]] = true
		}
	}
	assert.InDelta(t, 500, hits, 100)
	assert.Greater(t, len(absent), 450)
}

func joined(parts [][]byte) (all []byte) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}
