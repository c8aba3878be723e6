package compare

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// The servers must be other processes: the client blocks without telling the
// scheduler. asServer names the variable that makes this test binary one of them;
// it says what is wrong with its hitline and its Python.
const asServer = "COMPARE_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if fault := os.Getenv(asServer); fault != "" {
		fmt.Fprintln(os.Stderr, serveAs(fault, os.Args[1:]))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet's init starts some
}

// serveAs is this binary as the server that its arguments ask for.
func serveAs(fault string, args []string) error {
	switch args[0] {
	case "floor-server":
		size, _ := strconv.Atoi(args[1])
		return ServeFloor(os.Stderr, size, 1000)
	case "map-server":
		tokens, _ := strconv.Atoi(args[1])
		return ServeMap(os.Stderr, tokens)
	case "-c": // of Python: its versions, or the client
		if len(args) > 2 {
			return servePyzmq(args[2:])
		}
		fmt.Fprintln(os.Stdout, "fake 1.2, pyzmq 9.8, more")
		os.Exit(0)
	case "--version": // of Redis
		fmt.Fprintln(os.Stdout, "Redis server v=1.2 x")
		os.Exit(0)
	case "--bind":
		return serveRedis(args)
	case "version":
		fmt.Fprintln(os.Stdout, "fake 1.2\nmore")
		os.Exit(0)
	case "serve":
		if fault, faulty := strings.CutPrefix(fault, "hitline "); faulty {
			return serveFakeHitline(fault)
		}
		return serveHitline(16)
	case "-": // what Python is started with
		switch fault {
		case "wrong":
			return serveHitline(8)
		case "refuses":
			return serveHitline(48)
		case "none":
			return serveHitline(16)
		}
		return serveFault(fault)
	}
	return fmt.Errorf("cannot listen")
}

// serveHitline serves lookups of hashes that cover so many tokens.
func serveHitline(tokens int) error {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: tokens}})
	if err != nil {
		return err
	}
	server, err := server.New(service, server.Config{Listen: []string{"tcp://127.0.0.1:0"}})
	if err == nil {
		err = server.Start(context.Background())
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"listen\":[%q]}\n", server.Addrs()[0])
	<-server.Done()
	return nil
}

// serveFault is a ZeroMQ server with a fault.
func serveFault(fault string) error {
	if fault == "ends" {
		return fmt.Errorf("no luck")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if fault == "hangs" {
		select {}
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"listen\":[\"tcp://%s\"]}\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		_ = serveFaultTo(conn, fault)
		conn.Close()
	}
}

// serveFaultTo serves a connection that stores chains of 20 hashes, and another one until
// its first lookup.
func serveFaultTo(conn net.Conn, fault string) error {
	in := bufio.NewReader(conn)
	greeting, ready := string(zmtpGreeting), string(zmtpReady)
	switch fault {
	case "old":
		greeting = "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01" + greeting[11:]
	case "not ready":
		ready = "\x04\x06\x05ERROR"
	case "no command":
		ready = "\x00\x06\x05READY"
	case "silent":
		select {}
	}
	if _, err := in.Discard(len(zmtpGreeting) + len(zmtpReady)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(greeting + ready)); err != nil {
		return err
	}
	blob := 20 * hashLen
	before, done := zmtp.store(blob)
	for { // what is stored comes on a connection of its own
		head, err := in.Peek(len(before))
		if err != nil {
			return err
		}
		if string(head) != string(before) {
			break
		}
		if _, err := in.Discard(len(before) + blob); err != nil {
			return err
		}
		if fault == "refuses to store" {
			done[len(done)-1] = 0
		}
		if _, err := conn.Write(done); err != nil {
			return err
		}
	}
	if _, err := in.Discard(len(zmtp.lookup(0, blob)) + blob); err != nil {
		return err
	}
	switch fault {
	case "silent at lookups":
		select {}
	case "chatters":
		_, err := conn.Write([]byte("\x01\x00\x00\x04\x00\x00\x00\x00more"))
		return err
	}
	return nil // it closes
}

// faked returns options whose servers are this binary, and whose Python has a fault.
func faked(t *testing.T, fault string) Options {
	t.Setenv(asServer, fault)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else a server that ends takes a second for it
	o := small()
	o.Hitline = os.Args[0]
	o.Python = os.Args[0]
	o.RedisServer = os.Args[0]
	o.ValkeyServer = "" // looked for
	o.FloorServer = []string{os.Args[0], "floor-server"}
	o.MapServer = []string{os.Args[0], "map-server"}
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
		for _, way := range Ways() {
			for _, rival := range rivals {
				if o.wants(rival, way) && slices.Contains(waysOf(rival), way) {
					want = append(want, fmt.Sprintf("%s %s %d", rival, way, hashes))
				}
			}
		}
	}
	for _, row := range r.Rows {
		name := fmt.Sprintf("%s %s %d", row.Rival, row.Way, row.Hashes)
		got = append(got, name)
		assert.Zero(t, row.Wrong, name)
		assert.NotEmpty(t, row.Version, name)
		assert.NotEmpty(t, row.Client, name)
		assert.LessOrEqual(t, row.P50us, row.P99us, name)
		assert.LessOrEqual(t, row.P99us, row.MaxUs, name)
		assert.GreaterOrEqual(t, row.Requests, o.Rounds, name)
		for _, figure := range []float64{row.RoundP50us.Min, row.Ratio.Median, row.Ratio.Min, row.UsPerHash} {
			assert.Positive(t, figure, name)
		}
		assert.LessOrEqual(t, row.RoundP50us.Min, row.RoundP50us.Max, name)
		assert.LessOrEqual(t, row.Ratio.Min, row.Ratio.Max, name)
		if slices.Contains(rivals, Floor) {
			assert.Positive(t, row.ToFloor.Median, name)
		}
		if row.Rival == Hitline {
			assert.Equal(t, measure.Spread{Median: 1, Min: 1, Max: 1}, row.Ratio)
		}
	}
	assert.Equal(t, want, got)
}

// fakedRivals are those whose servers and clients this binary can be.
var fakedRivals = []string{Floor, Hitline, HitlineZMTP, GoNetMap, PythonBare, Python, RedisSMIsMember, RedisExists}

// What needs nothing but this binary.
func TestRun(t *testing.T) {
	allowed, err := process.Cores()
	require.NoError(t, err)
	for _, missAt := range []workload.MissAt{workload.MissRandom, workload.MissFirst, workload.MissTail} {
		o := faked(t, "none")
		o.MissAt = missAt
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
		t.Skip("starts Python and builds a rival")
	}
	o := faked(t, "none")
	o.GoMap = filepath.Join(t.TempDir(), "gomap")
	out, err := exec.Command("go", "-C", filepath.Join("..", "rivals", "gomap"), "build", "-o", o.GoMap, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	o.Python, o.RedisServer = storetest.PyzmqPython(t), ""
	rivals := []string{Floor, Hitline, HitlineZMTP, GoNetMap, GoZMQMap, PythonBare, Python}
	skipped := []string{MooncakeExists}
	for program, rows := range map[string][]string{"redis-server": {RedisSMIsMember, RedisExists}, "valkey-server": {ValkeySMIs, ValkeyExists}} {
		if _, err := exec.LookPath(program); err == nil {
			rivals = append(rivals, rows...)
		} else {
			skipped = append(skipped, rows...)
		}
	}
	if len(skipped) == 1+4 {
		storetest.SkipOrFail(t, "no redis-server and no valkey-server on this machine (Debian: redis-server)")
	}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	noChildren(t)
	judge(t, o, r, slices.DeleteFunc(Rivals(), func(name string) bool { return !slices.Contains(rivals, name) }))
	got := []string{}
	for _, s := range r.Skipped {
		got = append(got, s.Rival)
		assert.NotEmpty(t, s.Why)
	}
	assert.ElementsMatch(t, skipped, got)
	for _, row := range r.Rows {
		switch row.Rival {
		case Python:
			assert.Regexp(t, `^Python 3\.\S+, pyzmq 27\.3\.0, libzmq 4\.\S+$`, row.Version)
		case GoZMQMap:
			assert.Regexp(t, `^go1\.\S+, go-zeromq v0\.\S+$`, row.Version)
		case RedisExists:
			assert.Regexp(t, `^(Redis|Valkey) \d\S+$`, row.Version)
			if row.Way == Usual {
				assert.Regexp(t, `^go-redis \d`, row.Client)
			}
		}
	}
}

// A real master, whose keys are all absent.
func TestMooncake(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Mooncake master")
	}
	o := faked(t, "none")
	o.MooncakeMaster = storetest.RequireMooncake(t, storetest.MooncakeRelease).MasterProgram(t)
	o.Only = []string{MooncakeExists}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	judge(t, o, r, []string{Hitline, MooncakeExists})
	noChildren(t)
	assert.Contains(t, r.Rows[len(r.Rows)-1].Note, "miss only")
}

// Each fault of a rival is caught, and no server stays behind.
func TestRunFaults(t *testing.T) {
	for fault, want := range map[string]struct {
		is   error
		text string
	}{
		"refuses":           {measure.ErrAnswer, "python-zmq (prepared), 20 hashes: bad answer: it begins with 010000"},
		"refuses to store":  {measure.ErrAnswer, "python-zmq (prepared), 20 hashes: storing: chain 0: bad answer: it begins with 0100000100"},
		"chatters":          {measure.ErrAnswer, "0100000400000000" + "6d6f7265, of which 8 bytes are one"},
		"old":               {measure.ErrAnswer, "no ZMTP greeting under the NULL mechanism, but ff"},
		"not ready":         {measure.ErrAnswer, "no READY, but \"\\x05ERROR\""},
		"no command":        {measure.ErrAnswer, "no READY, but a frame of flags 0"},
		"closes":            {measure.ErrLost, "closed by the server"},
		"silent":            {measure.ErrLost, "greeting: no connection: no answer in time"},
		"silent at lookups": {measure.ErrLost, "python-zmq (prepared), 20 hashes: no connection: no answer in time"},
		"ends":              {measure.ErrLost, "ended (exit status 1): no luck"},
		"hangs":             {measure.ErrLost, "is not ready"},
	} {
		t.Run(fault, func(t *testing.T) {
			o := faked(t, fault)
			o.Hashes, o.Only, o.Ways = []int{20}, []string{Python}, []string{Prepared}
			silent := fault[0] == 's'
			switch {
			case fault == "hangs":
				o.Timeout = 500 * time.Millisecond
			case silent:
				o.Timeout = 3 * time.Second
			}
			r, err := Run(t.Context(), o)
			for silent && o.Timeout < 20*time.Second && strings.Contains(fmt.Sprint(err), "is not ready") {
				o.Timeout *= 3 // a busy machine takes longer to start a server
				r, err = Run(t.Context(), o)
			}
			require.ErrorIs(t, err, want.is)
			assert.ErrorContains(t, err, want.text)
			assert.True(t, r.Partial)
			assert.Empty(t, r.Rows)
			noChildren(t)
		})
	}
}

// Wrong answers are counted and told of; the others' rows are as they should be.
func TestRunWrong(t *testing.T) {
	o := faked(t, "wrong")
	o.Only, o.HitShare = []string{GoNetMap, Python}, 1
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
	assert.Contains(t, notes, "wrong: python-zmq (prepared), 20 hashes, request 14: expected 320 hit tokens, got 160")
}

// What is not here is left out with words, unless it was asked for.
func TestRunMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	o := faked(t, "none")
	o.Hashes, o.Python, o.RedisServer = []int{20}, "", ""
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Len(t, r.Rows, 4+2)
	assert.Equal(t, []Skipped{
		{HitlineZMTP, Usual, "python3 is neither beside this program nor on PATH; apt-get install python3-zmq"},
		{GoZMQMap, "", "hitbench-gomap is neither beside this program nor on PATH; make rivals builds it"},
		{PythonBare, "", "python3 is neither beside this program nor on PATH; apt-get install python3-zmq"},
		{Python, "", "python3 is neither beside this program nor on PATH; apt-get install python3-zmq"},
		{RedisSMIsMember, "", "redis-server is neither beside this program nor on PATH; apt-get install redis-server"},
		{RedisExists, "", "redis-server is neither beside this program nor on PATH; apt-get install redis-server"},
		{ValkeySMIs, "", "valkey-server is neither beside this program nor on PATH; apt-get install valkey-server"},
		{ValkeyExists, "", "valkey-server is neither beside this program nor on PATH; apt-get install valkey-server"},
		{MooncakeExists, "", "name the program with --mooncake-master; it is in the wheel mooncake-transfer-engine-non-cuda, as mooncake/mooncake_master"},
	}, r.Skipped)

	o.Only = []string{RedisExists}
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrLost)
	require.ErrorContains(t, err, "missing: redis-server is neither beside this program nor on PATH")

	o.RedisServer = "/no/such"
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrOptions)

	broken := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho 'No module named zmq' >&2\nexit 1\n"), 0o700))
	o.Only, o.Python = nil, broken
	o.RedisServer = ""
	r, err = Run(t.Context(), o)
	require.NoError(t, err)
	assert.Contains(t, r.Skipped, Skipped{Python, "", "cannot import zmq: " + broken + ": exit status 1: No module named zmq; python3 -m pip install pyzmq, or name a Python that has it with --python"})
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

// Cancelling must not wait for an answer that does not come, and what was measured
// before is in the report.
func TestRunCancelled(t *testing.T) {
	for fault, phase := range map[string]string{
		"hangs": "start python-zmq", "silent": "20 hashes: store", "silent at lookups": "20 hashes: warm up", "none": "300 hashes: rounds",
	} {
		t.Run(fault, func(t *testing.T) {
			o := faked(t, fault)
			o.Only, o.Timeout = []string{Python}, time.Hour
			if fault != "none" {
				o.Ways = []string{Prepared}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o.OnStep = func(at string, _, _ int) {
				if at == phase {
					time.AfterFunc(20*time.Millisecond, cancel)
				}
			}
			if fault == "none" {
				o.TimePerRival, o.Rounds = time.Minute, 1000
				o.Hashes = []int{300}
			}
			r, err := Run(ctx, o)
			require.ErrorIs(t, err, context.Canceled)
			assert.True(t, r.Partial)
			noChildren(t)
		})
	}
}

// What only some rivals have: lookups by anchors, pipelined rounds, and a server that runs.
func TestRunBesideFloor(t *testing.T) {
	o := faked(t, "none")
	o.Only, o.Ways = []string{Floor, HitlineZMTP}, []string{Prepared, Anchored}
	o.Requests, o.Batch, o.Pipeline, o.Idle, o.OneServerCore, o.Rotate = 70, 9, 7, true, true, 1<<9
	var phases []string
	o.OnStep = func(phase string, _, _ int) { phases = append(phases, phase) }
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	noChildren(t)
	judge(t, o, r, []string{Floor, Hitline, HitlineZMTP})
	assert.Contains(t, phases, "300 hashes: pipelined")
	assert.EqualValues(t, 1<<9, r.RotateBytes)
	if !r.Placement.Shared {
		assert.Len(t, r.Placement.Server, 1)
	}
	idle := 0
	for _, row := range r.Rows {
		name := row.Rival + " " + row.Way
		assert.Equal(t, 3*70, row.Requests)
		assert.Positive(t, row.CPUus.Median, name)
		pipelined := row.Way == Prepared && row.Rival != HitlineZMTP
		assert.Equal(t, pipelined, row.Rate.Median > 0, name)
		assert.Equal(t, pipelined, row.RateToFloor.Median > 0, name)
		assert.Equal(t, row.Way == Anchored, row.Hits != nil && row.Misses != nil && row.Misses.ToFloor.Median > 0, name)
		if row.IdleCPU != nil {
			idle++
		}
	}
	assert.Equal(t, len(o.Hashes), idle, "once for each number of hashes")
}

func TestRunConnect(t *testing.T) {
	o := faked(t, "none")
	server, err := process.Start(t.Context(), exec.Command(os.Args[0], "serve"), process.Options{Timeout: o.Timeout})
	require.NoError(t, err)
	defer server.Stop()
	o.Connect, o.Hitline, o.Idle = server.Addr(), "/no/such", true
	o.Only, o.Ways = []string{Floor}, []string{Prepared}
	notes := ""
	o.OnNote = func(text string) { notes += text + "\n" }
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	judge(t, o, r, []string{Floor, Hitline})
	assert.Equal(t, server.Addr(), r.Connect)
	for _, row := range r.Rows {
		assert.Equal(t, row.Rival == Floor, row.CPUus.Median > 0)
		assert.Nil(t, row.IdleCPU)
	}
	assert.Contains(t, notes, server.Addr()+" was not started here: it is not pinned")
}

// Each fault of hitline is caught, also with several requests under way. The fault is in its
// tenth answer, three are those of the warm-up.
func TestHitlineFaults(t *testing.T) {
	for fault, want := range map[string]struct {
		is              error
		text, pipelined string
	}{
		"refuses":       {measure.ErrAnswer, "hitline (prepared), 20 hashes: bad answer: it begins with 000100", "bad answer: it begins with 000100"},
		"chatters":      {measure.ErrAnswer, ", of which 6 bytes are one", "which was not asked for"},
		"closes":        {measure.ErrLost, "hitline (prepared), 20 hashes: no connection: closed by the server", "no connection: closed by the server"},
		"silent":        {measure.ErrLost, "hitline (prepared), 20 hashes: no connection: no answer in time", ""},
		"refuses store": {measure.ErrRefused, "storing: chain 0", ""},
	} {
		for requests, text := range map[int]string{30: want.text, 6: want.pipelined} {
			if text == "" {
				continue
			}
			t.Run(fmt.Sprint(fault, requests), func(t *testing.T) {
				o := faked(t, "hitline "+fault)
				o.Hashes, o.Only, o.Ways = []int{20}, []string{Floor}, []string{Prepared}
				o.Rounds, o.TimePerRival, o.Requests, o.Pipeline = 1, time.Nanosecond, requests, 2
				if fault == "silent" {
					o.Timeout = 3 * time.Second
				}
				r, err := Run(t.Context(), o)
				for fault == "silent" && o.Timeout < 20*time.Second && strings.Contains(fmt.Sprint(err), "is not ready") {
					o.Timeout *= 3 // a busy machine takes longer to start a server
					r, err = Run(t.Context(), o)
				}
				require.ErrorIs(t, err, want.is)
				assert.ErrorContains(t, err, text)
				assert.True(t, r.Partial)
				noChildren(t)
			})
		}
	}
	o := faked(t, "hitline wrong")
	o.Hashes, o.Only, o.Ways = []int{20}, []string{Floor}, []string{Prepared}
	o.Rounds, o.TimePerRival, o.Requests, o.Pipeline = 1, time.Nanosecond, 60, 7
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, 12, r.Wrong, "one answer in ten, of the warm-up and of the pipelined round too")
}

// The floor server answers when the last byte of a request has come, however the
// bytes come, and every request.
func TestFloorServer(t *testing.T) {
	t.Setenv(asServer, "none")
	p, err := process.Start(t.Context(), exec.Command(os.Args[0], "floor-server", "1500"), process.Options{Timeout: 20 * time.Second})
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
