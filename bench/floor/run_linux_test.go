package floor

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
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
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// The servers must be other processes: the client blocks without telling the
// scheduler. asServer names the variable that makes this test binary one of them,
// and says what is wrong with it.
const asServer = "FLOOR_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if fault := os.Getenv(asServer); fault != "" {
		if len(os.Args) == 3 && os.Args[1] == "floor-server" {
			size, _ := strconv.Atoi(os.Args[2])
			fmt.Fprintln(os.Stderr, ServeFloor(os.Stderr, size, 1000))
			os.Exit(1)
		}
		serveFake(fault)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet's init starts some
}

// serveFake is a hitline with a fault.
func serveFake(fault string) {
	if fault == "ends" {
		fmt.Fprint(os.Stderr, "cannot listen\n")
		os.Exit(1)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	if fault == "hangs" {
		select {}
	}
	fmt.Fprintf(os.Stderr, "a line\n{\"msg\":\"ready\",\"listen\":[\"tcp://%s\"]}\n", listener.Addr())
	f := fake{fault: fault, stored: map[string]bool{}}
	for {
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		f.serve(conn)
		conn.Close()
	}
}

type fake struct {
	fault   string
	stored  map[string]bool
	lookups int
}

func (f *fake) serve(conn net.Conn) {
	var have []byte
	b := make([]byte, 1<<16)
	for {
		n, err := conn.Read(b)
		if err != nil {
			return
		}
		have = append(have, b[:n]...)
		for {
			frames, used, err := netproto.ParseMessage(have, netproto.Limits{}, nil)
			if err != nil {
				break
			}
			reply := f.reply(frames)
			have = have[used:]
			if reply == nil {
				return
			}
			_, _ = conn.Write(reply)
		}
	}
}

// reply returns the answer, nil to close the connection.
func (f *fake) reply(frames [][]byte) []byte {
	if string(frames[0]) == "store" {
		for b := frames[3]; len(b) > 0; b = b[hashLen:] {
			f.stored[string(b[:hashLen])] = true
		}
		if f.fault == "refuses store" {
			return netproto.AppendFailed(nil, nil, "no")
		}
		return netproto.AppendDone(nil, nil, nil)
	}
	hit := 0
	for b := frames[3]; len(b) > 0 && f.stored[string(b[:hashLen])]; b = b[hashLen:] {
		hit++
	}
	whole := hit*hashLen == len(frames[3])
	f.lookups++
	switch tenth := f.lookups%10 == 0; {
	case f.fault == "wrong" && tenth:
		hit ^= 1
	case f.fault == "misses cuts" && !whole:
		hit = len(frames[3]) / hashLen
	case f.fault == "refuses" && tenth:
		return netproto.AppendFailed(nil, nil, "")
	case f.fault == "closes" && tenth:
		return nil
	case f.fault == "silent" && tenth:
		select {}
	case f.fault == "chatters" && tenth:
		reply := netproto.AppendHit(nil, nil, uint32(hit*16))
		return append(reply, reply...)
	}
	return netproto.AppendHit(nil, nil, uint32(hit*16))
}

// faulty returns options that measure a hitline with a fault, "none" for none.
func faulty(t *testing.T, fault string) Options {
	t.Setenv(asServer, fault)
	o := small()
	o.FloorServer = []string{os.Args[0], "floor-server"}
	o.Hitline = os.Args[0]
	o.Dial = func(ctx context.Context, addr string) (Storer, error) { return storer(ctx, addr) }
	return o
}

type clientStorer struct{ *client.Client }

func storer(ctx context.Context, addr string) (Storer, error) {
	c, err := client.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return clientStorer{c}, nil
}

func (c clientStorer) Store(ctx context.Context, keys []byte, hashLen int) error {
	return c.Client.Store(ctx, lookup.GroupRank{}, netproto.NewHashes(keys, hashLen))
}

// noChildren asserts that no process is left that was started here, not even one
// that has ended and was not waited for.
func noChildren(t *testing.T) {
	t.Helper()
	_, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	assert.Equal(t, unix.ECHILD, err)
}

func TestRun(t *testing.T) {
	allowed, err := process.Cores()
	require.NoError(t, err)
	procs := runtime.GOMAXPROCS(0)
	o := faulty(t, "none")
	o.Pipeline = 7
	var notes, phases []string
	o.OnNote = func(text string) { notes = append(notes, text) }
	o.OnStep = func(phase string, done, total int) {
		if done == total {
			phases = append(phases, phase)
		}
	}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	noChildren(t)
	assert.Zero(t, r.Wrong)
	assert.Equal(t, []string{"fill", "round trips", "pipelined"}, phases)
	assert.Equal(t, []int{50, 20, 1000, 3, 70, 7}, []int{r.Hashes, r.Chains, r.Entries, r.Rounds, r.Requests, r.Pipeline})
	assert.Equal(t, "raw", r.Dialect)
	assert.EqualValues(t, 2*32*1000, r.WorkingSet)
	for _, figure := range []float64{r.FloorP50us, r.HitlineP50us, r.Ratio, r.FloorRPS, r.HitlineRPS, r.RPSRatio, r.FloorCPUus, *r.HitlineCPUus} {
		assert.Positive(t, figure)
	}
	assert.LessOrEqual(t, r.FloorP50us, r.FloorP99us)
	assert.LessOrEqual(t, r.FloorP99us, r.FloorMaxus)
	assert.LessOrEqual(t, r.HitlineP99us, r.HitlineMaxus)
	assert.EqualValues(t, 1, r.Setup.Seed)
	assert.LessOrEqual(t, r.RatioMin, r.Ratio)
	assert.LessOrEqual(t, r.Ratio, r.RatioMax)
	require.NotNil(t, r.IdleCPU)
	if len(allowed) >= 2 {
		assert.Equal(t, allowed[:2], r.Cores)
	} else {
		assert.Empty(t, r.Cores)
		assert.Contains(t, fmt.Sprint(notes), "only one core")
	}
	after, err := process.Cores()
	require.NoError(t, err)
	assert.Equal(t, allowed, after, "no longer pinned")
	assert.Equal(t, procs, runtime.GOMAXPROCS(0))
}

func TestRunFaults(t *testing.T) {
	for fault, want := range map[string]struct {
		is   error
		text string
	}{
		"refuses":       {measure.ErrAnswer, "answer 20 of hitline: bad answer: it begins with 000100"},
		"chatters":      {measure.ErrAnswer, "it was not asked for"},
		"closes":        {measure.ErrLost, "answer 20 of hitline: no connection: closed by the server"},
		"silent":        {measure.ErrLost, "no answer in time"},
		"ends":          {measure.ErrLost, "ended (exit status 1): cannot listen"},
		"hangs":         {measure.ErrLost, "is not ready"},
		"refuses store": {client.ErrRefused, "storing chain 0"},
	} {
		t.Run(fault, func(t *testing.T) {
			o := faulty(t, fault)
			if fault == "silent" || fault == "hangs" {
				o.Timeout = time.Second
			}
			_, err := Run(t.Context(), o)
			for fault == "silent" && o.Timeout < 20*time.Second && strings.Contains(fmt.Sprint(err), "is not ready") {
				o.Timeout *= 4 // a busy machine takes longer to start a server
				_, err = Run(t.Context(), o)
			}
			require.ErrorIs(t, err, want.is)
			assert.ErrorContains(t, err, want.text)
			noChildren(t)
		})
	}
}

func TestRunWrong(t *testing.T) {
	o := faulty(t, "wrong")
	o.Pipeline = 3
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, 2*4*70/10, r.Wrong, "one answer in ten, of the warm-up too")

	// The rotation passes each of the 20 chains, of which 2 are cut.
	o = faulty(t, "misses cuts")
	o.Rounds, o.Requests = 1, 20
	r, err = Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, 2*2, r.Wrong)
}

func TestRunConnect(t *testing.T) {
	o := faulty(t, "none")
	server, err := process.Start(t.Context(), exec.Command(os.Args[0], "serve"), process.Options{Timeout: o.Timeout})
	require.NoError(t, err)
	defer server.Stop()
	o.Connect, o.Hitline = server.Addr(), "/no/such"
	notes := ""
	o.OnNote = func(text string) { notes += text + "\n" }
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Zero(t, r.Wrong)
	assert.Nil(t, r.IdleCPU)
	assert.Nil(t, r.HitlineCPUus)
	assert.Equal(t, server.Addr(), r.Connect)
	assert.Contains(t, notes, server.Addr()+" was not started here: it is not pinned")
}

func TestRunBadServers(t *testing.T) {
	o := faulty(t, "none")
	o.Hitline = "/no/such"
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrLost)
	noChildren(t)

	o = faulty(t, "none")
	o.Dial = func(context.Context, string) (Storer, error) { return nil, client.ErrConnect }
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, client.ErrConnect)
	noChildren(t)

	o.Hashes = 0
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrOptions)
}

// Cancelling must not wait for an answer that does not come.
func TestRunCancelled(t *testing.T) {
	for _, fault := range []string{"hangs", "silent", "none"} {
		o := faulty(t, fault)
		o.Timeout = time.Hour
		o.Rounds = 1000
		ctx, cancel := context.WithCancel(t.Context())
		if fault == "hangs" {
			time.AfterFunc(200*time.Millisecond, cancel)
		}
		o.OnStep = func(phase string, done, _ int) {
			if done == 20 || phase == "round trips" {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
		}
		_, err := Run(ctx, o)
		require.ErrorIs(t, err, context.Canceled, fault)
		noChildren(t)
		cancel()
	}
}

// Servers start on their core, and so do all of their threads.
func TestPinning(t *testing.T) {
	allowed, err := process.Cores()
	require.NoError(t, err)
	o := faulty(t, "none")
	core := allowed[len(allowed)-1]
	p, err := process.Start(t.Context(), exec.Command(os.Args[0], "serve"), process.Options{Cores: []int{core}, Timeout: o.Timeout})
	require.NoError(t, err)
	defer p.Stop()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Pid()))
	require.NoError(t, err)
	require.NotEmpty(t, threads)
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		var set unix.CPUSet
		require.NoError(t, unix.SchedGetaffinity(id, &set))
		assert.Equal(t, 1, set.Count())
		assert.True(t, set.IsSet(core))
	}
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
		for got < sent/1500*floorReply {
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			n, err := conn.Read(b)
			require.NoError(t, err)
			got += n
		}
		require.Equal(t, sent/1500*floorReply, got)
	}
}

func TestRoundTripDoesNotAllocate(t *testing.T) {
	o := faulty(t, "none")
	p, err := process.Start(t.Context(), exec.Command(os.Args[0], "floor-server", "1627"), process.Options{Timeout: o.Timeout})
	require.NoError(t, err)
	defer p.Stop()
	w := newWorkload(1, 20, 50, 16)
	control, err := wire.Dial(t.Context(), wire.Server{Address: p.Addr(), Timeout: o.Timeout})
	require.NoError(t, err)
	s, err := control.Socket(wire.Wait{Bound: o.Timeout})
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, 1627, w.size)
	peer := floorPeer(s, w, w.order())
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_, err := peer.roundTrip()
		require.NoError(t, err)
		_, err = peer.stream(5, 3)
		require.NoError(t, err)
	}))
}
