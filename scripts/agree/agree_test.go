//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/load/loadtest"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	lookupserver "github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// patience is far more than anything here takes.
const patience = 60 * time.Second

// generatorPath compiles the generator with traps for wrong use of memory and for undefined
// behavior.
func generatorPath(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		storetest.SkipOrFail(t, "no gcc on this machine")
	}
	path, err := buildGenerator(t.Context(), t.TempDir(), "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	require.NoError(t, err)
	return path
}

// generated is all that the generator prints.
type generated struct {
	result
	Mode        string  `json:"mode"`
	Connections int     `json:"connections"`
	Hashes      int     `json:"hashes"`
	Chains      int     `json:"chains"`
	Rate        float64 `json:"rate"`
	Seed        uint64  `json:"seed"`
	Seconds     float64 `json:"seconds"`
	P90us       float64 `json:"p90_us"`
}

// generate runs the generator on one core, so that several connections have one thread.
func generate(t *testing.T, path string, args ...string) (g generated, code int, stderr string) {
	t.Helper()
	cores, err := allowedCores()
	require.NoError(t, err)
	var out, errors bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdout, cmd.Stderr = &out, &errors
	c, err := startOn(cores[:1], cmd)
	require.NoError(t, err)
	_ = c.wait() // the exit code is checked
	if out.Len() > 0 {
		lines := json.NewDecoder(&out)
		lines.DisallowUnknownFields()
		require.NoError(t, lines.Decode(&g))
		require.ErrorIs(t, lines.Decode(&g), io.EOF)
	}
	return g, cmd.ProcessState.ExitCode(), errors.String()
}

// serveHere starts a real server in this process.
func serveHere(t *testing.T) (addr string, service *lookup.Service) {
	t.Helper()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: blockTokens}})
	require.NoError(t, err)
	srv, err := lookupserver.New(service, lookupserver.Config{Listen: []string{"tcp://127.0.0.1:0"}})
	require.NoError(t, err)
	require.NoError(t, srv.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, srv.Shutdown(ctx))
	})
	return strings.TrimPrefix(srv.Addrs()[0], "tcp://"), service
}

func TestGenerator(t *testing.T) {
	path := generatorPath(t)
	addr, _ := serveHere(t)
	for _, test := range []struct {
		name                string
		connections, hashes int
		more                []string
		requests            int64 // exactly; -1: as many as the machine makes
	}{
		{"one blocking", 1, 64, nil, -1},
		{"several by epoll", 5, 64, nil, -1},
		{"long", 2, 8192, []string{"--entries", "1"}, -1},
		{"one hash, one byte", 1, 1, []string{"--entries", "1", "--reset"}, -1},
		{"open", 1, 64, []string{"--rate", "200"}, 40},
		{"open, several", 3, 7, []string{"--rate", "250"}, 50},
		{"open, spinning", 1, 8, []string{"--rate", "100", "--spin"}, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			samples := filepath.Join(t.TempDir(), "samples")
			args := []string{
				"--connect", addr, "--connections", strconv.Itoa(test.connections), "--hashes", strconv.Itoa(test.hashes),
				"--entries", "1000", "--warmup", "0", "--seconds", "0.2", "--seed", "7", "--timeout", "60", "--samples", samples,
			}
			g, code, stderr := generate(t, path, append(args, test.more...)...)
			require.Zero(t, code, stderr)
			assert.Empty(t, stderr)
			assert.Zero(t, g.Wrong)
			assert.Equal(t, test.connections, g.Connections)
			assert.Equal(t, test.hashes, g.Hashes)
			assert.GreaterOrEqual(t, g.Chains, 10)
			assert.Equal(t, uint64(7), g.Seed)
			assert.InDelta(t, 0.2, g.Seconds, 1e-9)
			all, err := readSamples(samples)
			require.NoError(t, err)
			if test.requests >= 0 {
				assert.Equal(t, "open", g.Mode)
				assert.Equal(t, test.requests, g.Requests)
				assert.Len(t, all, int(test.requests))
				assert.InDelta(t, float64(test.requests)/0.2, g.RequestsPerSecond, 0.1)
			} else {
				assert.Equal(t, "closed", g.Mode)
				assert.GreaterOrEqual(t, len(all), test.connections)
				assert.LessOrEqual(t, g.Requests, int64(len(all)), "what was in flight at the end has a latency, and is no request")
			}
			var waits []float64 // µs
			for _, s := range all {
				waits = append(waits, float64(s.latency)/1e3)
			}
			slices.Sort(waits)
			for p, value := range map[int]float64{50: g.P50us, 90: g.P90us, 99: g.P99us, 100: g.Maxus} {
				assert.InDelta(t, percentile(waits, p), value, 0.01, p)
			}
			assert.Positive(t, waits[0])
		})
	}
}

// A tenth of the answers of these servers are wrong, or worse.
func TestGeneratorFindsFaults(t *testing.T) {
	path := generatorPath(t)
	for fault, want := range map[loadtest.Fault]struct {
		code  int
		wrong int64
	}{
		loadtest.None: {0, 0}, loadtest.OffByOne: {1, 4}, loadtest.NotWhole: {1, 4}, loadtest.Short: {1, 4}, loadtest.Long: {1, 4},
		loadtest.Frames: {1, 4}, loadtest.Done: {1, 4}, loadtest.Refuses: {1, 4},
		loadtest.Twice: {3, 0}, loadtest.LastTwice: {3, 0}, loadtest.Garbage: {3, 0}, loadtest.Closes: {3, 0}, loadtest.Half: {3, 0},
		loadtest.Silent: {3, 0}, loadtest.NoStore: {3, 0},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			faulty := &loadtest.Server{Fault: fault}
			addr, err := faulty.Start()
			require.NoError(t, err)
			defer faulty.Close()
			timeout := "60"
			if fault == loadtest.Silent {
				timeout = "1"
			}
			g, code, stderr := generate(t, path, "--connect", strings.TrimPrefix(addr, "tcp://"), "--hashes", "8", "--entries", "80",
				"--warmup", "0", "--seconds", "0.2", "--rate", "200", "--timeout", timeout)
			assert.Equal(t, want.code, code, stderr)
			assert.Equal(t, want.wrong, g.Wrong)
			assert.Equal(t, want.code == 3, stderr != "", stderr)
		})
	}
}

func TestGeneratorUsage(t *testing.T) {
	path := generatorPath(t)
	for _, args := range [][]string{
		{}, {"--connect", "nowhere"}, {"--connect", "a:1", "more"}, {"--connect", "a:1", "--hashes", "0"}, {"--connect", "a:1", "--hashes", "1.5"},
		{"--connect", "a:1", "--seconds", "x"}, {"--connect", "a:1", "--connections", "4", "--rate", "2"}, {"--unknown"},
		{"--connect", "a:1", "--hashes", "2000000", "--block-tokens", "2000000"},
	} {
		_, code, stderr := generate(t, path, args...)
		assert.Equal(t, 2, code, args)
		assert.Contains(t, stderr, "generator: ", args)
	}
	help, err := exec.Command(path, "--help").Output()
	require.NoError(t, err)
	assertNarrow(t, string(help))
}

// assertNarrow sees that help fits a terminal.
func assertNarrow(t *testing.T, help string) {
	t.Helper()
	for line := range strings.Lines(help) {
		assert.LessOrEqual(t, len([]rune(strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "        "))), 80, line)
	}
}

func TestFlags(t *testing.T) {
	var out, help bytes.Buffer
	require.Error(t, run(t.Context(), []string{"--help"}, &out, &help))
	assertNarrow(t, help.String())
	require.NoError(t, run(t.Context(), []string{"--list"}, &out, io.Discard))
	assert.Equal(t, "1x64 4x64 1x8192 4x8192 1x512 second-closed-1 second-open-1 second-closed-4 second-open-4 end-closed-1 end-open-1 end-closed-4 end-open-4",
		strings.Join(strings.Fields(out.String()), " "))
	for _, args := range [][]string{
		{"more"}, {"--pairs", "0"}, {"--seconds", "0"}, {"--seconds", "NaN"}, {"--stalls", "--seconds", "7"}, {"--tolerance", "0"}, {"--entries", "0"},
		{"--only", "1x65"}, {"--stalls", "--only", "1x64"}, {"--only", "1x512"}, {"--stalls", "--bare"}, {"--unknown"},
	} {
		require.ErrorIs(t, run(t.Context(), args, io.Discard, io.Discard), errUsage, args)
	}
	rows, err := choose(loadRows(), "1x*,4x64")
	require.NoError(t, err)
	assert.Equal(t, []string{"1x64", "4x64", "1x8192"}, names(rows))
}

func TestHalve(t *testing.T) {
	for n, want := range map[int]string{1: "[3] [3]", 2: "[3] [5]", 3: "[3] [5 7]", 4: "[3 5] [7 9]"} {
		servers, clients := halve([]int{3, 5, 7, 9}[:n])
		assert.Equal(t, want, fmt.Sprint(servers, clients))
	}
}

// The verdict is on the medians; a pair may differ by more.
func TestCompare(t *testing.T) {
	p := func(hitbench, generator, open float64) pair {
		return pair{
			hitbench: result{RequestsPerSecond: 1e6 / hitbench, P50us: hitbench}, generator: result{RequestsPerSecond: 1e6 / generator, P50us: generator},
			openHitbench: result{P50us: open}, openGenerator: result{P50us: open}, spinning: result{P50us: open / 2},
		}
	}
	pairs := []pair{p(100, 200, 118), p(100, 110, 118), p(104, 100, 118)}
	c := compare(loadRow{1, 64}, pairs, 0.15)
	require.Len(t, c, 5)
	assert.Equal(t, comparison{
		Connections: 1, Hashes: 64, Figure: "p50_us", Of: "hitbench, uncorrected", Beside: "generator", Value: 100, BesideValue: 110, Ratio: 0.909,
		RatioLeast: 0.5, RatioMost: 1.04, Pairs: [][2]float64{{100, 200}, {100, 110}, {104, 100}}, Judged: true, Agrees: true,
	}, c[1])
	assert.True(t, c[0].Agrees)
	assert.True(t, c[2].Judged)
	assert.False(t, c[2].Agrees, "1.18")
	assert.False(t, c[4].Judged)
	r := loadReport{Comparisons: c, Tolerance: 0.15}
	assert.Equal(t, []string{"1 connections, 64 hashes: p50_us of hitbench at half the rate is 118.0, of hitbench 100.0: 1.18 times"}, r.differences())
	var table bytes.Buffer
	require.NoError(t, r.writeTable(&table))
	assert.Equal(t, 1, strings.Count(table.String(), "* DIFFERS"))

	c = compare(loadRow{4, 64}, pairs, 0.15)
	require.Len(t, c, 2)
	assert.True(t, c[0].Judged)
	assert.False(t, c[1].Judged)

	assert.True(t, agrees(1.15, 0.15))
	assert.True(t, agrees(0.87, 0.15))
	assert.False(t, agrees(1.16, 0.15))
	assert.False(t, agrees(0.86, 0.15))
}

func TestParseResult(t *testing.T) {
	_, err := parseResult([]byte(`{"requests":3,"p50_us":1.5}`))
	require.NoError(t, err)
	for _, line := range []string{"", "{}", `{"requests":3,"wrong":1}`, `{"requests":3,"refused":1}`} {
		_, err := parseResult([]byte(line))
		require.Error(t, err, line)
	}
}

func TestPlanStalls(t *testing.T) {
	const ms = int64(time.Millisecond)
	measured := interval{1000 * ms, 3000 * ms}
	assert.Equal(t, []interval{{1450 * ms, 1550 * ms}, {2450 * ms, 2550 * ms}}, planStalls(stallRow{}, measured))
	assert.Equal(t, []interval{{2930 * ms, 3030 * ms}}, planStalls(stallRow{across: true}, measured))
}

// 1,000 lookups of which 100 wait for the end of a stall of 100 ms.
func TestObserved(t *testing.T) {
	const ms = int64(time.Millisecond)
	var all []sample
	for i := range int64(1200) {
		s := sample{due: i * ms, latency: 50_000}
		if i >= 500 && i < 600 {
			s.latency = (600 - i) * ms
		}
		all = append(all, s)
	}
	r, err := observed(all, interval{100 * ms, 1100 * ms})
	require.NoError(t, err)
	assert.Equal(t, result{Requests: 1000, RequestsPerSecond: 1000, P50us: 50, P99us: 91_000 - 1000, Maxus: 100_000}, r)
	_, err = observed(all, interval{1000 * ms, 2000 * ms})
	require.Error(t, err, "the observer ended before")

	s := stallResult{Row: "x", Hitbench: r, Observer: r, P99Agrees: true}
	s.countStalls([]interval{{0, 101 * ms}, {200 * ms, 300 * ms}})
	assert.InDelta(t, 100, s.StallLeast, 0)
	assert.InDelta(t, 101, s.StallMost, 0)
	report := stallReport{Stalls: []stallResult{s}}
	assert.Equal(t, []string{"x: maximum DIFFERS: hitbench 90.00, 100.00 ms; observer 90.00, 100.00 ms"}, report.differences())
	require.NoError(t, report.writeTable(io.Discard))
}

// The server is stopped, and runs when the stalls end, also if they are cut short.
func TestStall(t *testing.T) {
	cores, err := allowedCores()
	require.NoError(t, err)
	c, err := startOn(cores, exec.Command("sleep", "3600"))
	require.NoError(t, err)
	s := &server{child: c}
	defer s.kill()
	state := func() string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(text), ") ")
		return rest[:1]
	}
	made, err := s.stopAsPlanned(t.Context(), []interval{{0, int64(time.Millisecond)}, {0, int64(2 * time.Millisecond)}})
	require.NoError(t, err)
	require.Len(t, made, 2)
	assert.GreaterOrEqual(t, made[1].to-made[1].from, int64(2*time.Millisecond))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.stopAsPlanned(ctx, []interval{{0, int64(time.Hour)}})
		ended <- err
	}()
	require.Eventually(t, func() bool { return state() == "T" }, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Eventually(t, func() bool { return state() != "T" }, patience, time.Millisecond)
	require.NoError(t, s.signal(syscall.SIGSTOP)) // a stopped process is killed like any other
}

// All of it with the real programs. No verdict hangs on what they measure.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds hitline and hitbench")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		storetest.SkipOrFail(t, "no gcc on this machine")
	}
	bin := t.TempDir() + "/"
	text, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/hitline", "../../cmd/hitbench").CombinedOutput()
	require.NoError(t, err, string(text))
	args := []string{"--hitline", bin + "hitline", "--hitbench", bin + "hitbench", "--entries", "1000", "--tolerance", "1e15", "--seed", "5", "--json"}
	agree := func(into any, more ...string) {
		var out, progress bytes.Buffer
		require.NoError(t, run(t.Context(), append(slices.Clone(args), more...), &out, &progress), progress.String())
		require.NoError(t, json.Unmarshal(out.Bytes(), into))
		assert.Equal(t, 1, strings.Count(out.String(), "\n"))
	}
	var loads loadReport
	agree(&loads, "--only", "1x64", "--pairs", "1", "--seconds", "0.5")
	assert.Len(t, loads.Comparisons, 5)
	assert.Equal(t, uint64(5), loads.Setup.Seed)

	var stalls stallReport
	agree(&stalls, "--stalls", "--only", "second-open-1", "--seconds", "1")
	require.Len(t, stalls.Stalls, 1)
	s := stalls.Stalls[0]
	assert.Equal(t, 1, s.Stalls)
	assert.GreaterOrEqual(t, s.StallLeast, 100.0)
	assert.InDelta(t, 1000, s.Observer.Requests, 1)

	require.ErrorContains(t, run(t.Context(), []string{"--hitline", bin + "none"}, io.Discard, io.Discard), "make build")
}

// The bare server answers what the generator asks, in pieces of any size.
func TestBareServer(t *testing.T) {
	chain := make([]byte, 64*32)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(chain)
	request := func(frames ...[]byte) (message []byte) {
		for i, f := range frames {
			message = netproto.AppendFrame(message, f, i < len(frames)-1)
		}
		return message
	}
	lookup := func(chain []byte) []byte { return request([]byte("lookup"), []byte{0, 0, 4, 0}, []byte{0, 32}, chain) }
	store := func(chain []byte) []byte { return request([]byte("store"), make([]byte, 6), []byte{0, 32}, chain) }
	changed, absent := bytes.Clone(chain), bytes.Clone(chain)
	changed[40]++
	absent[0]++
	done, hit, miss := []byte{0, 1, 1}, []byte{0, 4, 0, 0, 4, 0}, []byte{0, 4, 0, 0, 0, 0}
	for _, size := range []int{1, 7, 2000, 1 << 20} {
		s, conn := &bareServer{chains: map[uint64][]byte{}}, &bareConn{}
		var asked, want, answers []byte
		for _, step := range []struct{ request, answer []byte }{
			{lookup(chain), miss},
			{store(chain), done},
			{lookup(chain), hit},
			{lookup(changed), miss},
			{lookup(absent), miss},
			{lookup(chain[:32]), miss},
			{request([]byte("ping"), []byte("end")), request([]byte{1}, []byte("end"))},
			{lookup(chain), hit},
			{request([]byte("reset")), done},
			{lookup(chain), miss},
		} {
			asked, want = append(asked, step.request...), append(want, step.answer...)
		}
		out := writerFunc(func(p []byte) (int, error) { answers = append(answers, p...); return len(p), nil })
		for piece := range slices.Chunk(asked, size) {
			require.True(t, s.serve(out, conn, piece))
		}
		require.Equal(t, want, answers, size)
		require.False(t, s.serve(out, conn, request([]byte("stat"))))
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
